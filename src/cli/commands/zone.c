/* `weir zone`: what a zone contains, and whether it is sound. */
#include "cli/zone.h"
#include "cli/cli.h"

#include "base/clock.h"
#include "store/zone/row.h"
#include "store/zone/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define URL_BYTES (PATH_MAX + 16)

static bool zone_starts_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/* The URL of a zone. A path without a scheme is a file. */
static int zone_address(const struct cli_call *call, const char *name, char *ret)
{
    struct weir__buffer url = weir__buffer_over(ret, URL_BYTES);
    bool addressed = zone_starts_with(name, "file:") || zone_starts_with(name, "shm:");
    if (zone_starts_with(name, "memory:"))
        return cli_fail(
            call, CLI_USAGE,
            "invalid zone \"%s\": a memory: zone exists only inside its process; expected a file: "
            "or shm: zone",
            cli_show_text(name).text);
    if (strstr(name, "://") && zone_starts_with(name, "redis"))
        return cli_fail(call, CLI_USAGE,
                        "invalid zone \"%s\": Redis has no zone; expected a file: or shm: zone",
                        cli_show_text(name).text);
    if (!addressed)
        weir__put_text(&url, "file:");
    weir__put_text(&url, name);
    if (url.cut || (!addressed && strchr(name, '?')))
        return cli_fail(
            call, CLI_USAGE,
            "invalid zone \"%s\": expected a path without a question mark, file:/path or "
            "shm:/name",
            cli_show_text(name).text);
    return CLI_OK;
}

/* Who names the zone of shm:/name without the scheme means no file. */
static int zone_check_scheme(const struct cli_call *call, const char *name)
{
    char shared[NAME_MAX + 2];
    const char *bare = name + (name[0] == '/');
    if (strchr(bare, '/') || strlen(bare) > NAME_MAX || access(name, F_OK) == 0)
        return CLI_OK;
    snprintf(shared, sizeof shared, "/%s", bare);
    int fd = shm_open(shared, O_RDONLY, 0);
    if (fd < 0 && errno != EACCES)
        return CLI_OK;
    if (fd >= 0)
        close(fd);
    return cli_fail(call, CLI_FAILED, "%s: there is no such file; did you mean shm:%s?",
                    cli_show_text(name).text, cli_show_text(shared).text);
}

/* ---- printing ---- */

static double zone_share(uint64_t part, uint64_t all)
{
    return all ? 100.0 * (double)part / (double)all : 0;
}

static double zone_bytes_per_key(const weir_zone_info *info)
{
    return info->capacity ? (double)(info->size - info->large_bytes) / (double)info->capacity : 0;
}

/* What there was too little room in. The zone does not tell, so: what is full now. A table evicts
 * nobody before three quarters of it are taken; leases stop at half of the large area. */
static const char *zone_remedy(const weir_zone_info *info)
{
    if (info->limits >= info->limits_max - info->limits_max / 8)
        return "make the zone larger, or use fewer different limits";
    if (info->keys < info->capacity - info->capacity / 4 &&
        info->large_used >= info->large_bytes / 2 - info->large_bytes / 16)
        return "raise large=, there is no room for more logs, windows or leases";
    return "make the zone larger";
}

static void zone_print_info(const char *url, const weir_zone_info *info, uint64_t receipts)
{
    struct cli_style style = cli_style_of(stdout);
    uint64_t live = info->evicted_unused + info->evicted_soonest;
    printf("%s%s%s\n", style.bold, url, style.off);
    printf("  %ssound%s: everything that can be checked is right\n", style.good, style.off);
    printf("  size       %12" PRIu64 " bytes\n", info->size);
    printf("  states     %12" PRIu64 " of %" PRIu64 ", %.1f%% full, %.1f bytes each\n", info->keys,
           info->capacity, zone_share(info->keys, info->capacity), zone_bytes_per_key(info));
    printf("  large      %12" PRIu64 " of %" PRIu64
           " bytes for logs, windows and leases, %.1f%% full\n",
           info->large_used, info->large_bytes, zone_share(info->large_used, info->large_bytes));
    printf("  limits     %12" PRIu64 " different, of at most %" PRIu64 "\n", info->limits,
           info->limits_max);
    printf("  evicted    %12" PRIu64 " expired states, which changes nothing\n",
           info->evicted_fresh);
    printf("             %s%12" PRIu64 "%s states in use\n", live ? style.bad : "",
           info->evicted_unused, live ? style.off : "");
    printf("             %s%12" PRIu64 "%s states in use, while they were denied\n",
           live ? style.bad : "", info->evicted_soonest, live ? style.off : "");
    printf("  receipts   %12" PRIu64 " settled, remembered for an hour\n", receipts);
    if (info->evicted_receipts)
        printf("             %s%12" PRIu64 "%s forgotten before\n", style.bad,
               info->evicted_receipts, style.off);
    if (info->refused)
        printf("  refused    %s%12" PRIu64 "%s requests, because there was no room\n", style.bad,
               info->refused, style.off);
    printf("  repairs    %12" PRIu64 " after a process died\n", info->repairs);
    if (live)
        printf("  States in use were evicted, so limits were too lenient: %s.\n",
               zone_remedy(info));
    if (info->evicted_receipts)
        printf("  Settled receipts were forgotten, so a repeated settle counts twice: make the "
               "zone larger.\n");
    if (info->refused)
        printf("  Requests were refused, so limits were too strict: %s.\n", zone_remedy(info));
}

static void zone_print_json(const char *url, const weir_zone_info *info, uint64_t receipts)
{
    struct weir__json json = cli_json_begin('{');
    weir__json_put_string(&json, "zone", url);
    weir__json_put_bool(&json, "sound", true);
    weir__json_put_int(&json, "size", (int64_t)info->size);
    weir__json_put_int(&json, "keys", (int64_t)info->keys);
    weir__json_put_int(&json, "capacity", (int64_t)info->capacity);
    weir__json_put_double(&json, "bytes_a_key", zone_bytes_per_key(info));
    weir__json_put_int(&json, "large_bytes", (int64_t)info->large_bytes);
    weir__json_put_int(&json, "large_used", (int64_t)info->large_used);
    weir__json_put_int(&json, "limits", (int64_t)info->limits);
    weir__json_put_int(&json, "limits_max", (int64_t)info->limits_max);
    weir__json_put_int(&json, "evicted_fresh", (int64_t)info->evicted_fresh);
    weir__json_put_int(&json, "evicted_unused", (int64_t)info->evicted_unused);
    weir__json_put_int(&json, "evicted_soonest", (int64_t)info->evicted_soonest);
    weir__json_put_int(&json, "evicted_receipts", (int64_t)info->evicted_receipts);
    weir__json_put_int(&json, "receipts", (int64_t)receipts);
    weir__json_put_int(&json, "refused", (int64_t)info->refused);
    weir__json_put_int(&json, "repairs", (int64_t)info->repairs);
    cli_json_end(&json, '}');
}

/* ---- the command ---- */

static int zone_look(const struct cli_call *call, weir_store *store, const char *url,
                     bool only_check, bool as_json)
{
    weir_zone_info info;
    weir_error err = {0};
    int code = weir_store_check(store, &err);
    if (code)
        return cli_fail(call, cli_exit_for(code), "%s: %s", cli_show_text(url).text, err.message);
    code = weir_store_info(store, &info);
    if (code)
        return cli_refused(call, store, code);
    if (only_check && !as_json) {
        printf("%s is sound\n", url);
        return CLI_OK;
    }
    const struct weir__zone *zone = &((struct weir__zone_store *)store)->region.zone;
    (as_json ? zone_print_json : zone_print_info)(url, &info,
                                                  weir__zone_marks(zone, weir__clock_us()));
    return CLI_OK;
}

/* What the command is asked to do. */
struct zone_task {
    const char *name, *load;
    bool check, json, dump;
};

static int zone_open_and(const struct cli_call *call, const struct zone_task *task, const char *url)
{
    weir_store *store = NULL;
    int code = zone_check_scheme(call, task->name);
    if (code == CLI_OK)
        code = cli_open_store(call, url, &store);
    if (code == CLI_OK)
        code = task->dump ? cli_zone_dump(call, store, url)
                          : zone_look(call, store, url, task->check, task->json);
    weir_store_close(store);
    return code;
}

static int cmd_zone(const struct cli_call *call)
{
    struct zone_task task = {0};
    const struct cli_option options[] = {
        {"check", CLI_FLAG, &task.check, 0},
        {"json", CLI_FLAG, &task.json, 0},
        {"dump", CLI_FLAG, &task.dump, 0},
        {"load", CLI_TEXT, &task.load, 0},
    };
    const struct cli_operand operands[] = {{"PATH or URL", &task.name, false}};
    char url[URL_BYTES];
    int code = CLI_PARSE(call, options, operands);
    if (code == CLI_OK && (task.dump || task.load) &&
        (task.check || task.json || (task.dump && task.load)))
        return cli_fail(call, CLI_USAGE, "--dump and --load go with no other option; choose one");
    if (code == CLI_OK)
        code = zone_address(call, task.name, url);
    if (code)
        return code;
    return task.load ? cli_zone_load(call, url, task.load) : zone_open_and(call, &task, url);
}

const struct cli_command cli_zone = {
    .name = "zone",
    .summary = "show what a zone contains, and whether it is sound; dump and load it",
    .run = cmd_zone,
    .looks = true,
};
