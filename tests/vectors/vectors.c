/*
 * Holds the library to the golden vectors (format: README.md beside this): every field of every
 * answer, through the public functions and a store whose clock is the file's.
 *
 *     vectors [--store URL] FILE.vec …
 */
#include "weir.h"

#include "../unit/test.h"

#include <stdlib.h>

#define LEASES_MAX 64

struct runner {
    const char *file;
    long line;
    weir_store *store;
    weir_limit *limit;
    long cases;
    char key[64];
    int64_t now;
    weir_decision rows[WEIR_LIMITS_MAX];
    weir_decision last;
    struct {
        char name[32];
        uint64_t id;
    } leases[LEASES_MAX];
    size_t lease_count;
};

static int64_t clock_now(void *context)
{
    return ((struct runner *)context)->now;
}

static void fail(struct runner *runner, const char *what)
{
    test_check(0, runner->file, (int)runner->line, what);
}

static int64_t read_wait(const char *text)
{
    if (!strcmp(text, "default"))
        return WEIR_WAIT_DEFAULT;
    return !strcmp(text, "any") ? WEIR_WAIT_ANY : atoll(text);
}

/* Whether the answers of a line tell what is granted: seven numbers, not six. */
static bool tells_granted(const char *expected)
{
    int spaces = 0;
    for (; *expected; expected++)
        spaces += *expected == ' ';
    return spaces == 6;
}

static void compare(struct runner *runner, const weir_decision *got, const char *expected)
{
    char text[256];
    int len =
        snprintf(text, sizeof text, "%d %lld %lld %lld %lld %lld", got->allowed,
                 (long long)got->limit, (long long)got->remaining, (long long)got->retry_after_us,
                 (long long)got->reset_after_us, (long long)got->delay_us);
    if (tells_granted(expected))
        snprintf(text + len, sizeof text - (size_t)len, " %lld", (long long)got->granted);
    char what[512];
    snprintf(what, sizeof what, "got %s, expected %s", text, expected);
    test_check(!strcmp(text, expected), runner->file, (int)runner->line, what);
}

/* The cost, or least and cost, `500..4000`. */
static void read_cost(const char *text, weir_request *ret)
{
    const char *dots = strstr(text, "..");
    ret->least = dots ? atoll(text) : 0;
    ret->cost = atoll(dots ? dots + 2 : text);
    if (ret->cost == 0)
        ret->cost = WEIR_COST_NONE;
}

/* What a decision says it charged, against what it granted. */
static void check_charged(struct runner *runner, const weir_request *request, bool peek)
{
    const weir_decision *it = &runner->last;
    int64_t most = request->cost == WEIR_COST_NONE ? 0 : request->cost;
    bool whole = !it->allowed || request->least || it->granted == most;
    test_check(whole && it->granted >= (it->allowed ? request->least : 0) && it->granted <= most &&
                   it->charged == (peek ? 0 : it->granted),
               runner->file, (int)runner->line, "granted or charged");
}

static void ask(struct runner *runner, const char *verb, char *rest, const char *expected)
{
    long long t;
    char cost[64], wait[32] = "";
    if (sscanf(rest, "%lld %63s %31s", &t, cost, wait) != 3)
        return fail(runner, "unreadable request");
    runner->now = t;
    weir_request request = {.key = weir_key_text(runner->key),
                            .limit = runner->limit,
                            .wait_us = read_wait(wait),
                            .detail = runner->rows};
    read_cost(cost, &request);
    int code = !strcmp(verb, "peek") ? weir_peek_all(runner->store, &request, 1, &runner->last)
                                     : weir_take_all(runner->store, &request, 1, &runner->last);
    if (code)
        return fail(runner, weir_strerror(code));
    check_charged(runner, &request, !strcmp(verb, "peek"));
    if (!strcmp(verb, "grant")) {
        char text[64];
        snprintf(text, sizeof text, "%d %lld", runner->last.allowed,
                 (long long)runner->last.delay_us);
        test_check(!strcmp(text, expected), runner->file, (int)runner->line, text);
    } else {
        compare(runner, &runner->last, expected);
    }
}

static void acquire(struct runner *runner, char *rest, const char *expected)
{
    long long t;
    char cost[64], name[32], wait[32];
    if (sscanf(rest, "%lld %63s %31s %31s", &t, cost, name, wait) != 4)
        return fail(runner, "unreadable acquire");
    runner->now = t;
    weir_request request = {.key = weir_key_text(runner->key),
                            .limit = runner->limit,
                            .wait_us = read_wait(wait),
                            .detail = runner->rows,
                            .acquire = true};
    read_cost(cost, &request);
    int code = weir_take_all(runner->store, &request, 1, &runner->last);
    if (code)
        return fail(runner, weir_strerror(code));
    check_charged(runner, &request, false);
    compare(runner, &runner->last, expected);
    if (runner->last.allowed && runner->lease_count < LEASES_MAX) {
        snprintf(runner->leases[runner->lease_count].name, 32, "%s", name);
        runner->leases[runner->lease_count++].id = runner->last.lease;
    }
}

static void change_lease(struct runner *runner, const char *verb, char *rest, const char *expected)
{
    long long t;
    char name[32];
    uint64_t id = 0;
    if (sscanf(rest, "%lld %31s", &t, name) != 2)
        return fail(runner, "unreadable lease");
    runner->now = t;
    for (size_t i = 0; i < runner->lease_count; i++) {
        if (!strcmp(runner->leases[i].name, name))
            id = runner->leases[i].id;
    }
    int code = (!strcmp(verb, "renew") ? weir_renew : weir_release)(
        runner->store, weir_key_text(runner->key), runner->limit, id);
    test_check((code == 0) == atoi(expected) && (code == 0 || code == WEIR_ENOLEASE), runner->file,
               (int)runner->line, weir_strerror(code));
}

static void settle(struct runner *runner, char *rest, const char *expected)
{
    long long t, t0, c0, c1;
    if (sscanf(rest, "%lld %lld %lld %lld", &t, &t0, &c0, &c1) != 4)
        return fail(runner, "unreadable settle");
    runner->now = t;
    weir_decision charged = {.time_us = t0, .charged = c0};
    char receipt[WEIR_RECEIPT_SIZE];
    weir_receipt(&charged, receipt);
    int code =
        weir_settle(runner->store, weir_key_text(runner->key), runner->limit, receipt, c1, NULL);
    int wanted = !strcmp(expected, "ok") ? 0 : WEIR_EUNSUPPORTED;
    test_check(code == wanted, runner->file, (int)runner->line, weir_strerror(code));
}

static void parse_line(struct runner *runner, const char *verb, char *rest)
{
    weir_limit *limit = NULL;
    weir_error err = {0};
    char *arrow = strstr(rest, " => ");
    if (arrow)
        *arrow = 0;
    int code = weir_limit_parse(rest, &limit, &err);
    if (!strcmp(verb, "bad")) {
        test_check(code == WEIR_ESYNTAX && err.column >= 1, runner->file, (int)runner->line, rest);
    } else {
        const char *got = code ? err.message : weir_limit_text(limit);
        char what[1024];
        snprintf(what, sizeof what, "got \"%s\", expected \"%s\"", got, arrow + 4);
        test_check(!strcmp(got, arrow + 4), runner->file, (int)runner->line, what);
        weir_limit *again = NULL;
        if (code == 0 && weir_limit_parse(weir_limit_text(limit), &again, NULL) == 0)
            CHECK_TEXT(weir_limit_text(again), weir_limit_text(limit));
        weir_limit_free(again);
    }
    weir_limit_free(limit);
}

static void begin_case(struct runner *runner)
{
    snprintf(runner->key, sizeof runner->key, "%s:%ld", runner->file, ++runner->cases);
    runner->lease_count = 0;
}

static void set_limit(struct runner *runner, const char *text)
{
    weir_error err = {0};
    weir_limit_free(runner->limit);
    runner->limit = NULL;
    if (weir_limit_parse(text, &runner->limit, &err))
        fail(runner, err.message);
}

static void run_line(struct runner *runner, char *line)
{
    char *rest = strchr(line, ' ');
    if (line[0] == '#' || !rest)
        return;
    *rest++ = 0;
    char *expected = strstr(rest, "= ");
    if (!strcmp(line, "ok") || !strcmp(line, "bad"))
        parse_line(runner, line, rest);
    else if (!strcmp(line, "case"))
        begin_case(runner);
    else if (!strcmp(line, "limit"))
        set_limit(runner, rest);
    else if (!runner->limit)
        fail(runner, "no limit");
    else if (!strcmp(line, "take") || !strcmp(line, "peek") || !strcmp(line, "grant"))
        ask(runner, line, rest, expected + 2);
    else if (!strcmp(line, "row"))
        compare(runner, &runner->rows[atoi(rest)], expected + 2);
    else if (!strcmp(line, "bind"))
        CHECK_INT(runner->last.binding, atoi(rest));
    else if (!strcmp(line, "settle"))
        settle(runner, rest, expected + 2);
    else if (!strcmp(line, "acquire"))
        acquire(runner, rest, expected + 2);
    else if (!strcmp(line, "renew") || !strcmp(line, "release"))
        change_lease(runner, line, rest, expected + 2);
    else if (!strcmp(line, "reset"))
        test_check(weir_reset(runner->store, weir_key_text(runner->key)) == 0, runner->file,
                   (int)runner->line, "reset");
    else
        fail(runner, "unknown verb");
}

static void run_file(const char *url, const char *path)
{
    struct runner runner = {.file = path};
    weir_error err = {0};
    FILE *file = fopen(path, "r");
    if (!file || weir_store_open(url, &runner.store, &err)) {
        printf("%s: %s\n", path, err.message);
        test_failed++;
        return;
    }
    weir_clock clock = {clock_now, NULL, &runner};
    weir_store_set_clock(runner.store, &clock);
    char *line = NULL;
    size_t size = 0;
    ssize_t len;
    while ((len = getline(&line, &size, file)) > 0) {
        runner.line++;
        if (line[len - 1] == '\n')
            line[len - 1] = 0;
        run_line(&runner, line);
    }
    free(line);
    fclose(file);
    CHECK_INT(weir_store_check(runner.store, &err), 0);
    weir_limit_free(runner.limit);
    weir_store_close(runner.store);
}

int main(int argc, char **argv)
{
    const char *url = "memory:64m?large=50%";
    int first = 1;
    if (argc > 2 && !strcmp(argv[1], "--store")) {
        url = argv[2];
        first = 3;
    }
    for (int i = first; i < argc; i++)
        run_file(url, argv[i]);
    return test_report();
}
