/* `weir zone`: what a zone holds, and whether it is sound. */
#include "cli/cli.h"
#include "cli/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define URL_BYTES (PATH_MAX + 16)

static bool begins(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/* The address of what is named: a bare path is a file. */
static int address(const struct cli_call *call, const char *name, char *ret)
{
    struct weir__buffer url = weir__buffer_over(ret, URL_BYTES);
    bool addressed = begins(name, "file:") || begins(name, "shm:");
    if (begins(name, "memory:"))
        return cli_fail(
            call, CLI_USAGE,
            "\"%s\": a memory: zone lives and dies with its process; name a file: or shm: "
            "zone",
            cli_show_text(name).text);
    if (strstr(name, "://") && begins(name, "redis"))
        return cli_fail(call, CLI_USAGE,
                        "\"%s\": Redis has no zone to check; name a file: or shm: zone, or ask "
                        "Redis itself",
                        cli_show_text(name).text);
    if (!addressed)
        weir__put_text(&url, "file:");
    weir__put_text(&url, name);
    if (url.cut || (!addressed && strchr(name, '?')))
        return cli_fail(call, CLI_USAGE,
                        "\"%s\": expected a path without a question mark, file:/path or shm:/name",
                        cli_show_text(name).text);
    return CLI_OK;
}

/* Opening makes what is missing or empty; looking must not. */
static int must_exist(const struct cli_call *call, const char *url)
{
    char path[URL_BYTES];
    struct weir__buffer buffer = weir__buffer_over(path, sizeof path);
    bool shared = begins(url, "shm:");
    const char *rest = strchr(url, ':') + 1;
    weir__put(&buffer, rest, strcspn(rest, "?"));
    struct stat status;
    int fd = shared ? shm_open(path, O_RDONLY | O_CLOEXEC, 0)
                    : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return cli_fail(call, CLI_FAILED, "cannot open %s: %s%s", cli_show_text(path).text,
                        strerror(errno), errno == ENOENT ? "; there is no zone to look at" : "");
    bool empty = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0;
    close(fd);
    if (empty)
        return cli_fail(call, CLI_FAILED, "%s is empty, not a weir zone", cli_show_text(path).text);
    return CLI_OK;
}

/* ---- what is printed ---- */

static double share(uint64_t part, uint64_t all)
{
    return all ? 100.0 * (double)part / (double)all : 0;
}

static double bytes_a_key(const weir_zone_info *info)
{
    return info->capacity ? (double)(info->size - info->large_bytes) / (double)info->capacity : 0;
}

static void print_info(const char *url, const weir_zone_info *info)
{
    struct cli_style style = cli_style_of(stdout);
    uint64_t live = info->evicted_unused + info->evicted_soonest;
    printf("%s%s%s\n", style.bold, url, style.off);
    printf("  %ssound%s: every byte that can be checked was checked\n", style.good, style.off);
    printf("  size       %12" PRIu64 " bytes\n", info->size);
    printf("  states     %12" PRIu64 " of %" PRIu64 ", %.1f%% full, %.1f bytes each\n", info->keys,
           info->capacity, share(info->keys, info->capacity), bytes_a_key(info));
    printf("  large      %12" PRIu64 " of %" PRIu64
           " bytes for logs, windows and leases, %.1f%% full\n",
           info->large_used, info->large_bytes, share(info->large_used, info->large_bytes));
    printf("  limits     %12" PRIu64 " different\n", info->limits);
    printf("  evicted    %12" PRIu64 " as good as new, nobody could tell\n", info->evicted_fresh);
    printf("             %s%12" PRIu64 "%s in use, the least used\n", live ? style.bad : "",
           info->evicted_unused, live ? style.off : "");
    printf("             %s%12" PRIu64 "%s in use, the soonest as new\n", live ? style.bad : "",
           info->evicted_soonest, live ? style.off : "");
    printf("  repairs    %12" PRIu64 " after processes that died\n", info->repairs);
    if (live)
        printf("  States in use were evicted: make the zone larger, or limits are too lenient.\n");
}

static void print_json(const char *url, const weir_zone_info *info)
{
    struct cli_json json = {stdout, false};
    cli_json_open(&json, NULL, '{');
    cli_json_text(&json, "zone", url);
    cli_json_bool(&json, "sound", true);
    cli_json_int(&json, "size", (int64_t)info->size);
    cli_json_int(&json, "keys", (int64_t)info->keys);
    cli_json_int(&json, "capacity", (int64_t)info->capacity);
    cli_json_double(&json, "bytes_a_key", bytes_a_key(info));
    cli_json_int(&json, "large_bytes", (int64_t)info->large_bytes);
    cli_json_int(&json, "large_used", (int64_t)info->large_used);
    cli_json_int(&json, "limits", (int64_t)info->limits);
    cli_json_int(&json, "evicted_fresh", (int64_t)info->evicted_fresh);
    cli_json_int(&json, "evicted_unused", (int64_t)info->evicted_unused);
    cli_json_int(&json, "evicted_soonest", (int64_t)info->evicted_soonest);
    cli_json_int(&json, "repairs", (int64_t)info->repairs);
    cli_json_close(&json, '}');
    cli_json_end(&json);
}

/* ---- the command ---- */

static int look(const struct cli_call *call, weir_store *store, const char *url, bool only_check,
                bool as_json)
{
    weir_zone_info info;
    weir_error err = {0};
    int code = weir_store_check(store, &err);
    if (code)
        return cli_fail(call, cli_exit_for(code), "%s: %s", cli_show_text(url).text, err.message);
    code = weir_store_info(store, &info);
    if (code)
        return cli_refused(call, store, code);
    if (as_json)
        print_json(url, &info);
    else if (only_check)
        printf("%s is sound\n", url);
    else
        print_info(url, &info);
    return CLI_OK;
}

static int run(const struct cli_call *call)
{
    const char *name = NULL;
    bool only_check = false, as_json = false;
    const struct cli_option options[] = {
        {"check", CLI_FLAG, &only_check, 0},
        {"json", CLI_FLAG, &as_json, 0},
    };
    const struct cli_operand operands[] = {{"PATH or URL", &name, false}};
    char url[URL_BYTES];
    weir_store *store = NULL;
    int code = CLI_PARSE(call, options, operands);
    if (code == CLI_OK)
        code = address(call, name, url);
    if (code == CLI_OK)
        code = must_exist(call, url);
    if (code == CLI_OK)
        code = cli_open_store(call, url, &store);
    if (code == CLI_OK)
        code = look(call, store, url, only_check, as_json);
    weir_store_close(store);
    return code;
}

const struct cli_command cli_zone = {
    .name = "zone",
    .summary = "what a zone holds, and whether it is sound",
    .help = "Usage: weir zone PATH|URL [--check] [--json]\n"
            "\n"
            "Checks every byte of a zone that can be checked, and prints its size, how full\n"
            "it is, what was evicted and what was repaired. The zone may be in use meanwhile.\n"
            "A zone that is missing is not made.\n"
            "\n"
            "Options:\n"
            "  --check       only check: one line if it is sound, else the damage and exit\n"
            "                code 3\n"
            "  --json        print one JSON object\n"
            "\n"
            "Examples:\n"
            "  weir zone ~/.local/state/weir/zone\n"
            "  weir zone shm:/app --json\n"
            "  weir zone --check file:/var/lib/app/zone\n" CLI_EXIT_CODES,
    .run = run,
};
