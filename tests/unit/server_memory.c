/* What a cgroup leaves: version 1, version 2, nested, in a container that sees only its part of the
 * tree. */
#include "server/server.h"

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MIB (UINT64_C(1) << 20)

static char root[] = "/tmp/weir-memory-XXXXXX";

/* Writes a file below the root, folders and all. */
static void put(const char *path, const char *text)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s", root, path);
    for (char *at = name + sizeof root; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(name, 0700);
        *at = '/';
    }
    FILE *file = fopen(name, "we");
    if (!CHECK(file != NULL))
        return;
    fputs(text, file);
    fclose(file);
}

static void clear(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s/*", root);
    CHECK_INT(system(command), 0);
}

static void test_bounds(void)
{
    CHECK_INT(server_cgroup_bound(root), 0); /* nothing there */
    put("/proc/self/cgroup", "0::/user.slice/weir.service\n");
    CHECK_INT(server_cgroup_bound(root), 0);
    put("/sys/fs/cgroup/user.slice/weir.service/memory.max", "max\n");
    CHECK_INT(server_cgroup_bound(root), 0);
    put("/sys/fs/cgroup/user.slice/weir.service/memory.max", "134217728\n");
    CHECK_INT(server_cgroup_bound(root), 134217728);
    put("/sys/fs/cgroup/user.slice/memory.max", "67108864\n"); /* the one around it is less */
    CHECK_INT(server_cgroup_bound(root), 67108864);
    put("/sys/fs/cgroup/user.slice/memory.max", "268435456\n");
    CHECK_INT(server_cgroup_bound(root), 134217728);
    clear();
    put("/proc/self/cgroup", "0::/\n"); /* a container's own view */
    put("/sys/fs/cgroup/memory.max", "100000000\n");
    CHECK_INT(server_cgroup_bound(root), 100000000);
    put("/proc/self/cgroup", "0::/../../pod/container\n"); /* seen from a part of the tree */
    CHECK_INT(server_cgroup_bound(root), 100000000);
    clear();
    put("/proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n");
    put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK_INT(server_cgroup_bound(root), 0);
    put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "536870912\n");
    CHECK_INT(server_cgroup_bound(root), 536870912);
    clear();
    put("/proc/self/cgroup", "4:memory:/docker/abc\n"); /* mounted as the container's own */
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "33554432\n");
    CHECK_INT(server_cgroup_bound(root), 33554432);
    put("/proc/self/cgroup", "nonsense\n\n::\n4:memory\n");
    CHECK_INT(server_cgroup_bound(root), 0);
    put("/proc/self/cgroup", "4:memory:/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "99999999999999999999999\n");
    CHECK_INT(server_cgroup_bound(root), 0);
    clear();
}

static void test_fit(void)
{
    struct server_memory memory = {256 * MIB, 20000};
    CHECK(!server_memory_fit(0, 64 * MIB, false, &memory));
    CHECK(memory.kept == 256 * MIB && memory.connections == 20000);
    CHECK(!server_memory_fit(4096 * MIB, 64 * MIB, false, &memory));
    CHECK(memory.kept == 256 * MIB && memory.connections == 20000);
    CHECK(server_memory_fit(128 * MIB, 64 * MIB, false, &memory));
    CHECK(memory.kept == 20 * MIB && memory.connections == 1280);
    memory = (struct server_memory){256 * MIB, 20000};
    CHECK(
        server_memory_fit(16 * MIB, 64 * MIB, false, &memory)); /* less than the store: the least */
    CHECK(memory.kept == 4 * MIB && memory.connections == 64);
    memory = (struct server_memory){256 * MIB, 20000};
    CHECK(server_memory_fit(128 * MIB, 64 * MIB, true,
                            &memory)); /* connections with TLS are larger */
    CHECK(memory.kept == 20 * MIB && memory.connections == 426);
    memory = (struct server_memory){5 * MIB, 10};
    CHECK(!server_memory_fit(128 * MIB, 64 * MIB, false, &memory));
    CHECK(memory.kept == 5 * MIB && memory.connections == 10);
}

int main(void)
{
    if (!CHECK(mkdtemp(root) != NULL))
        return test_report();
    test_bounds();
    test_fit();
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    CHECK_INT(system(command), 0);
    return test_report();
}
