/* What the system says of this process, under the names that Prometheus clients give it. */
#include "server/observe/metrics_inside.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t cpu_us(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage))
        return -1;
    return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static void look_at_memory(struct server_process *ret)
{
    FILE *const file = fopen("/proc/self/statm", "re");
    if (!file)
        return;
    long long all, resident;
    if (fscanf(file, "%lld %lld", &all, &resident) == 2) {
        const int64_t page = sysconf(_SC_PAGESIZE);
        ret->virtual_bytes = all * page;
        ret->resident_bytes = resident * page;
    }
    fclose(file);
}

/* Since Linux 6.2 the folder's size is the count; before that there is no way but counting. */
static int64_t open_files(void)
{
    struct stat facts;
    if (stat("/proc/self/fd", &facts) == 0 && facts.st_size > 0)
        return facts.st_size;
    DIR *const folder = opendir("/proc/self/fd");
    if (!folder)
        return -1;
    int64_t count = -1; /* the folder's own */
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static int64_t most_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return -1;
    return (int64_t)limit.rlim_cur;
}

void server_process_look(struct server_process *ret)
{
    *ret = (struct server_process){
        .cpu_us = cpu_us(),
        .resident_bytes = -1,
        .virtual_bytes = -1,
        .open_files = open_files(),
        .most_files = most_files(),
    };
    look_at_memory(ret);
}
