/*
 *   bench-load --port N --proto resp|http|grpc [options] -- WORDS [--and [options] -- WORDS]
 *
 * WORDS are the request: a command and its arguments; a method, a path and perhaps a body; or a
 * domain and key=value entries of Envoy's rate limit service. Ten '#' in them stand for a key's
 * number. After --and stands a second load for the same time (its own connections, rate, keys),
 * told of in "and". One line of JSON is printed; it fails when the server cannot be talked to, not
 * by what it answers.
 */
#include "load.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

static const char usage[] =
    "usage: bench-load --port N --proto resp|http|grpc [options] -- WORDS [--and [options] -- "
    "WORDS]\n"
    "  resp: COMMAND [ARGUMENT...]   http: METHOD PATH [BODY]   grpc: DOMAIN KEY=VALUE...\n"
    "  ten '#' in WORDS stand for a key's number\n"
    "  --connections N  (50)      --pipeline N   requests or streams at once a connection (1)\n"
    "  --seconds S                --requests N   instead; with neither, one second\n"
    "  --warmup S       before the clock starts (0)\n"
    "  --keys N         (100000)  --order random|each|fresh   fresh: never seen, from --first N "
    "on\n"
    "  --rate R         requests a second by a fixed schedule; max, or without it: as fast as "
    "answered\n"
    "  --cpu-of PID     counts that process's CPU time over the same while\n";

struct settings {
    const struct protocol *protocol;
    const char *order;
    double seconds, warmup, rate;
    uint64_t port, pid, connections, pipeline, requests, keys, first;
};

__attribute__((format(printf, 1, 2), noreturn)) void load_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

void *load_allocate(size_t size)
{
    void *p = calloc(1, size);
    if (!p)
        load_die("no memory");
    return p;
}

/* ---- the command line ---- */

static uint64_t whole(const char *name, const char *text, uint64_t least, uint64_t most)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value < least || value > most)
        load_die("%s must be %llu to %llu, not %s", name, (unsigned long long)least,
                 (unsigned long long)most, text);
    return value;
}

static double decimal(const char *name, const char *text, double most)
{
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || !(value > 0 && value <= most))
        load_die("%s must be above 0 and up to %g, not %s", name, most, text);
    return value;
}

static const struct protocol *protocol_named(const char *name)
{
    static const struct protocol *const all[] = {&load_resp, &load_http, &load_grpc};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!strcmp(all[i]->name, name))
            return all[i];
    }
    load_die("--proto is resp, http or grpc, not %s", name);
}

static void read_option(struct settings *to, const char *name, const char *value)
{
    if (!strcmp(name, "--port"))
        to->port = whole(name, value, 1, 65535);
    else if (!strcmp(name, "--proto"))
        to->protocol = protocol_named(value);
    else if (!strcmp(name, "--connections"))
        to->connections = whole(name, value, 1, CONNECTIONS_MAX);
    else if (!strcmp(name, "--pipeline"))
        to->pipeline = whole(name, value, 1, DEPTH_MAX);
    else if (!strcmp(name, "--seconds"))
        to->seconds = decimal(name, value, 3600);
    else if (!strcmp(name, "--warmup"))
        to->warmup = decimal(name, value, 3600);
    else if (!strcmp(name, "--requests"))
        to->requests = whole(name, value, 1, UINT32_MAX);
    else if (!strcmp(name, "--keys"))
        to->keys = whole(name, value, 1, UINT32_MAX);
    else if (!strcmp(name, "--first"))
        to->first = whole(name, value, 0, UINT64_C(9999999999));
    else if (!strcmp(name, "--rate"))
        to->rate = !strcmp(value, "max") ? 0 : decimal(name, value, 1e8);
    else if (!strcmp(name, "--cpu-of"))
        to->pid = whole(name, value, 1, INT32_MAX);
    else if (!strcmp(name, "--order"))
        to->order = value;
    else
        load_die("no option %s\n%s", name, usage);
}

static enum order order_named(const char *name)
{
    static const char *const names[] = {"random", "each", "fresh"};
    for (int i = 0; i < 3; i++) {
        if (!strcmp(names[i], name))
            return (enum order)i;
    }
    load_die("--order is random, each or fresh, not %s", name);
}

/* Reads options and words up to --and; where it stopped. */
static int read_load(struct load *ret, struct settings *settings, int argc, char **argv, int at)
{
    for (; at < argc && strcmp(argv[at], "--") != 0; at += 2) {
        if (!strcmp(argv[at], "--help")) {
            fputs(usage, stdout);
            exit(0);
        }
        if (at + 1 == argc)
            load_die("%s lacks a value\n%s", argv[at], usage);
        read_option(settings, argv[at], argv[at + 1]);
    }
    int words = at + 1;
    for (at = words; at < argc && strcmp(argv[at], "--and") != 0;)
        at++;
    if (words >= at || !settings->port || !settings->protocol)
        load_die("a port, a protocol and the request's words are needed\n%s", usage);

    struct template template = {0};
    bool streams = settings->protocol == &load_grpc;
    ret->protocol = settings->protocol;
    ret->count = (unsigned)settings->connections;
    ret->depth = (unsigned)settings->pipeline;
    ret->batch = streams ? 1 : ret->depth;
    ret->rate = settings->rate;
    ret->protocol->compose(ret, argv + words, at - words, &template);
    requests_make(&ret->requests, &template, order_named(settings->order), settings->keys,
                  settings->first);
    free(template.bytes);
    return at;
}

/* ---- results ---- */

static double process_cpu_us(uint64_t pid)
{
    clockid_t clock;
    struct timespec ts;
    if (!pid)
        return 0;
    int error = clock_getcpuclockid((pid_t)pid, &clock);
    if (error || clock_gettime(clock, &ts))
        load_die("the CPU time of process %llu: %s", (unsigned long long)pid,
                 strerror(error ? error : errno));
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static void print_load(const struct load *it, double seconds)
{
    static const struct {
        const char *name;
        double share;
    } shares[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}};
    const struct tally *tally = &it->tally;
    printf("\"requests\": %llu, \"a_second\": %.1f, \"allowed\": %llu, \"denied\": %llu, "
           "\"others\": %llu, \"errors\": %llu, \"latency_us\": {",
           (unsigned long long)tally->sent, (double)tally->sent / seconds,
           (unsigned long long)tally->allowed, (unsigned long long)tally->denied,
           (unsigned long long)tally->others, (unsigned long long)tally->errors);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        printf("\"%s\": %.1f, ", shares[i].name,
               (double)latency_at(&tally->latency, shares[i].share) / 1e3);
    printf("\"max\": %.1f}", (double)tally->latency.max_ns / 1e3);
}

static double run_phase(struct load *loads, unsigned count, const struct settings *first,
                        double seconds)
{
    for (unsigned i = 0; i < count; i++) {
        loads[i].left = first->requests && i == 0 ? first->requests : UINT64_MAX;
        memset(&loads[i].tally, 0, sizeof loads[i].tally);
    }
    return load_run(loads, count, seconds);
}

int main(int argc, char **argv)
{
    static struct load loads[LOADS_MAX];
    struct settings settings = {
        .connections = 50, .pipeline = 1, .keys = 100000, .order = "random"};
    unsigned count = 1;
    int at = read_load(&loads[0], &settings, argc, argv, 1);
    struct settings first = settings;
    if (first.requests && first.warmup > 0)
        load_die("--warmup goes with --seconds, not with --requests");
    if (at < argc) {
        if (first.requests)
            load_die("--and goes with --seconds, not with --requests");
        if (read_load(&loads[count++], &settings, argc, argv, at + 1) < argc)
            load_die("no more than one --and");
    }
    for (unsigned i = 0; i < count; i++)
        load_open(&loads[i], (uint16_t)(i ? settings.port : first.port));

    double length = first.requests ? 0 : first.seconds > 0 ? first.seconds : 1;
    if (first.warmup > 0)
        run_phase(loads, count, &first, first.warmup);
    double cpu = process_cpu_us(first.pid);
    int64_t began = load_now_ns();
    double idle = run_phase(loads, count, &first, length);
    double seconds = (double)(load_now_ns() - began) / 1e9;
    cpu = process_cpu_us(first.pid) - cpu;

    printf("{\"seconds\": %.6f, \"server_cpu_us\": %.1f, \"client_idle\": %.3f, ", seconds, cpu,
           idle);
    print_load(&loads[0], seconds);
    if (count > 1) {
        printf(", \"and\": {");
        print_load(&loads[1], seconds);
        printf("}");
    }
    printf("}\n");
    return 0;
}
