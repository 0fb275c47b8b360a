/*
 * The access log: lines say what was decided, are whole whatever happens to the file, and none is
 * lost uncounted; the loops never wait.
 */
#include "server/observe/access_log.h"

#include "base/clock.h"
#include "test.h"
#include "wire/json.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/weir-access-log-XXXXXX";

static const char *path_of(const char *name)
{
    static char paths[2][128];
    static int turn;
    char *const path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static struct server_access_log *open_log(const char *path, size_t threads)
{
    struct server_access_log_setup setup = {.path = path, .threads = threads, .sample = 1};
    struct server_access_log *log = NULL;
    weir_error err = {0};
    if (!CHECK(server_access_log_open(&setup, &log, &err) == WEIR_OK))
        printf("%s\n", err.message);
    return log;
}

static struct weir__span span(const char *text)
{
    return (struct weir__span){text, strlen(text)};
}

static void put(struct server_access_log *log, size_t thread, const char *key)
{
    const weir_decision decision = {.limit = 10, .remaining = 9, .allowed = true};
    const struct server_log_record record = {
        .time_us = 1700000000123456,
        .protocol = SERVER_RESP,
        .texts[SERVER_LOG_CLIENT] = span("192.0.2.1"),
        .texts[SERVER_LOG_POLICY] = span("api"),
        .texts[SERVER_LOG_KEY] = span(key),
        .cost = 1,
        .decision = &decision,
        .allowed = true,
        .verdict = WEIR__VERDICT_LIMITS,
    };
    server_access_log_put(server_access_log_thread(log, thread), &record);
}

static struct server_access_log_state state_of(struct server_access_log *log)
{
    struct server_access_log_state state;
    server_access_log_state(log, &state);
    return state;
}

/* Waits until so many lines had their fate; the writer is a thread of its own. */
static bool wait_for(struct server_access_log *log, uint64_t lines)
{
    for (int i = 0; i < 60000; i++) {
        const struct server_access_log_state state = state_of(log);
        if (state.written + state.failed + state.dropped >= lines)
            return true;
        weir__clock_sleep_us(1000);
    }
    return false;
}

/* A whole file; the caller frees it. */
static char *content_of(const char *path)
{
    FILE *const file = fopen(path, "re");
    if (!CHECK(file != NULL))
        return strdup("");
    char *text = NULL;
    size_t size = 0;
    if (getdelim(&text, &size, '\0', file) < 0) {
        free(text);
        text = strdup("");
    }
    fclose(file);
    return text;
}

/* How many lines there are; each must be one JSON object. */
static uint64_t check_lines(char *text)
{
    static struct weir__json_node nodes[64];
    uint64_t count = 0;
    for (char *stop; (stop = strchr(text, '\n')); text = stop + 1, count++)
        CHECK(weir__json_read(text, (size_t)(stop - text), nodes, 64, NULL) > 0);
    CHECK_TEXT(text, ""); /* no half of a line at the end */
    return count;
}

/* ---- tests ---- */

static void test_fields(void)
{
    const char *const path = path_of("fields");
    struct server_access_log *const log = open_log(path, 1);
    struct server_log_thread *const thread = server_access_log_thread(log, 0);
    const weir_decision denied = {.limit = 100,
                                  .remaining = 0,
                                  .retry_after_us = WEIR_NEVER,
                                  .reset_after_us = 2500000,
                                  .degraded = true,
                                  .local = true};
    server_access_log_put(thread, &(struct server_log_record){
                                      .time_us = 1700000000123456,
                                      .protocol = SERVER_HTTP,
                                      .texts[SERVER_LOG_CLIENT] = span("2001:db8::1"),
                                      .texts[SERVER_LOG_POLICY] = span("api"),
                                      .texts[SERVER_LOG_ENTRY] = span("per-user"),
                                      .texts[SERVER_LOG_KEY] = span("user:\"4\"\n"),
                                      .cost = 3,
                                      .decision = &denied,
                                      .verdict = WEIR__VERDICT_LIMITS,
                                      .shadow_denied = 2,
                                  });
    server_access_log_put(thread, &(struct server_log_record){
                                      .time_us = 1700000001000000,
                                      .protocol = SERVER_GRPC,
                                      .texts[SERVER_LOG_KEY] = {"\xff\x00", 2},
                                      .cost = 1,
                                      .decision = &denied, /* no limit was asked */
                                      .allowed = true,
                                      .verdict = WEIR__VERDICT_ALLOW,
                                  });
    server_access_log_close(log);
    char *const text = content_of(path);
    CHECK_TEXT(text, "{\"time\":1700000000.123456,\"protocol\":\"http\",\"client\":\"2001:db8::1\","
                     "\"policy\":\"api\",\"entry\":\"per-user\",\"key\":\"user:\\\"4\\\"\\n\","
                     "\"cost\":3,\"allowed\":false,\"verdict\":\"limits\",\"limit\":100,"
                     "\"remaining\":0,\"retry_after\":null,\"reset_after\":2.500000,"
                     "\"delay\":0.000000,\"granted\":0,\"degraded\":true,\"local\":true,"
                     "\"shadow_denied\":2}\n"
                     "{\"time\":1700000001.000000,\"protocol\":\"grpc\",\"client\":\"\","
                     "\"policy\":\"\",\"key_base64\":\"/wA=\",\"cost\":1,\"allowed\":true,"
                     "\"verdict\":\"allow\",\"shadow_denied\":0}\n");
    free(text);
}

/* The longest texts, all of them escaped, still make a line. */
static void test_long_texts(void)
{
    const char *const path = path_of("long");
    struct server_access_log *const log = open_log(path, 1);
    char *const bells = malloc(WEIR_KEY_MAX);
    memset(bells, '\a', WEIR_KEY_MAX);
    const struct weir__span all = {bells, WEIR_KEY_MAX};
    for (int i = 0; i < 10; i++)
        server_access_log_put(server_access_log_thread(log, 0),
                              &(struct server_log_record){.texts[SERVER_LOG_CLIENT] = all,
                                                          .texts[SERVER_LOG_POLICY] = all,
                                                          .texts[SERVER_LOG_ENTRY] = all,
                                                          .texts[SERVER_LOG_KEY] = all,
                                                          .verdict = WEIR__VERDICT_NONE});
    server_access_log_close(log);
    char *const text = content_of(path);
    CHECK(strstr(text, "\"key_cut\":true") != NULL);
    CHECK_INT(check_lines(text), 10);
    free(text);
    free(bells);
}

static void test_sampling(void)
{
    struct server_access_log_setup setup = {
        .path = "/dev/null", .threads = 1, .sample = 10, .every_denial = true};
    struct server_access_log *log = NULL;
    CHECK_INT(server_access_log_open(&setup, &log, NULL), WEIR_OK);
    struct server_log_thread *thread = server_access_log_thread(log, 0);
    int allowed = 0, denied = 0;
    for (int i = 0; i < 100000; i++) {
        allowed += server_access_log_wants(thread, true);
        denied += server_access_log_wants(thread, false);
    }
    CHECK(allowed > 9000 && allowed < 11000);
    CHECK_INT(denied, 100000);
    server_access_log_close(log);

    setup = (struct server_access_log_setup){.path = "/dev/null", .threads = 1};
    CHECK_INT(server_access_log_open(&setup, &log, NULL), WEIR_OK);
    thread = server_access_log_thread(log, 0);
    CHECK(!server_access_log_wants(thread, true) && !server_access_log_wants(thread, false));
    server_access_log_close(log);

    setup.sample = UINT32_MAX;
    CHECK_INT(server_access_log_open(&setup, &log, NULL), WEIR_OK);
    server_access_log_close(log);
    setup.sample = 1;
    CHECK_INT(server_access_log_open(&setup, &log, NULL), WEIR_OK);
    thread = server_access_log_thread(log, 0);
    for (int i = 0; i < 100; i++)
        CHECK(server_access_log_wants(thread, i % 2));
    server_access_log_close(log);
}

/* Moved away and opened anew: what was before is in the old file, what comes is in the new one. */
static void test_reopen(void)
{
    char moved[128];
    const char *const path = path_of("reopen");
    snprintf(moved, sizeof moved, "%s.1", path);
    struct server_access_log *const log = open_log(path, 1);
    put(log, 0, "before");
    CHECK(wait_for(log, 1));
    CHECK_INT(rename(path, moved), 0);
    server_access_log_reopen(log);
    for (int i = 0; i < 60000 && access(path, F_OK); i++)
        weir__clock_sleep_us(1000);
    put(log, 0, "behind");
    CHECK(wait_for(log, 2));
    char *text = content_of(moved);
    CHECK(strstr(text, "before") && !strstr(text, "behind"));
    free(text);
    text = content_of(path);
    CHECK(strstr(text, "behind") && !strstr(text, "before"));
    free(text);
    /* Where that fails, the old file stays in use, and somebody is told. */
    unlink(path);
    CHECK_INT(mkdir(path, 0700), 0);
    server_access_log_reopen(log);
    for (int i = 0; i < 60000 && !state_of(log).reopen_failures; i++)
        weir__clock_sleep_us(1000);
    put(log, 0, "on");
    CHECK(wait_for(log, 3));
    CHECK_INT(state_of(log).written, 3);
    CHECK_INT(state_of(log).reopen_failures, 1);
    CHECK(state_of(log).last_errno != 0);
    server_access_log_close(log);
    rmdir(path);
}

static void test_refusals(void)
{
    struct server_access_log_setup setup = {.threads = 1, .sample = 1};
    struct server_access_log *log = NULL;
    weir_error err = {0};
    setup.path = path_of("no/such/folder");
    CHECK_INT(server_access_log_open(&setup, &log, &err), WEIR_ESYSTEM);
    CHECK(!log && strstr(err.message, "no/such/folder") && strstr(err.message, "No such file"));
    setup.path = path_of("fifo"); /* that nobody reads: an error, not a wait */
    CHECK_INT(mkfifo(setup.path, 0600), 0);
    CHECK_INT(server_access_log_open(&setup, &log, &err), WEIR_ESYSTEM);
    server_access_log_close(NULL);
}

/* A reader that does not read: lines are dropped and counted; when it reads on, so does the log. */
static void test_slow_reader(void)
{
    const char *const path = path_of("fifo");
    const int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CHECK(reader >= 0);
    struct server_access_log *const log = open_log(path, 1);
    const uint64_t count = 10000;
    for (uint64_t i = 0; i < count; i++)
        put(log, 0, "a key of some length, so that the ring is full before long");
    CHECK(state_of(log).dropped > 0);
    static char received[1 << 22];
    size_t len = 0;
    struct server_access_log_state state = state_of(log);
    for (int i = 0; i < 60000 && state.written + state.dropped < count; i++) {
        const ssize_t n = read(reader, received + len, sizeof received - 1 - len);
        len += n > 0 ? (size_t)n : 0;
        if (n <= 0)
            weir__clock_sleep_us(1000);
        state = state_of(log);
    }
    CHECK_INT(state.written + state.dropped, count);
    CHECK_INT(state.failed, 0);
    for (ssize_t n; (n = read(reader, received + len, sizeof received - 1 - len)) > 0;)
        len += (size_t)n;
    received[len] = '\0';
    CHECK_INT(check_lines(received), state.written);
    /* A reader that stopped for good holds up the end for two seconds, not for ever. */
    for (int i = 0; i < 3000; i++)
        put(log, 0, "a key of some length, so that the ring is full before long");
    const int64_t before = weir__clock_us();
    server_access_log_close(log);
    CHECK(weir__clock_us() - before < 60000000);
    close(reader);
}

/* A full device loses lines, each counted, and says why. */
static void test_full(void)
{
    struct server_access_log *const log = open_log("/dev/full", 1);
    put(log, 0, "one");
    put(log, 0, "two");
    CHECK(wait_for(log, 2));
    CHECK_INT(state_of(log).failed, 2);
    CHECK_INT(state_of(log).written, 0);
    CHECK(state_of(log).last_errno != 0);
    server_access_log_close(log);
}

/* A file that may not grow ends in half a line; once it may, that line is finished before
 * others. */
static void test_half_written(void)
{
    const char *const path = path_of("half");
    struct rlimit limit, before;
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct server_access_log *const log = open_log(path, 1);
    limit = before;
    limit.rlim_cur = 1000;
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 20; i++)
        put(log, 0, "x");
    CHECK(wait_for(log, 19)); /* all but the one in the middle */
    struct stat facts;
    CHECK_INT(stat(path, &facts), 0);
    CHECK_INT(facts.st_size, 1000);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    for (int i = 0; i < 5; i++)
        put(log, 0, "y");
    CHECK(wait_for(log, 25));
    const struct server_access_log_state state = state_of(log);
    CHECK(state.failed > 0 && state.written > 5);
    server_access_log_close(log);
    char *const text = content_of(path);
    CHECK_INT(check_lines(text), state.written);
    free(text);
}

/* ---- threads ---- */

#define THREADS 3
#define RECORDS 20000

struct producer {
    struct server_access_log *log;
    size_t thread;
};

static void *produce(void *context)
{
    const struct producer *const producer = context;
    for (int i = 0; i < RECORDS; i++) {
        char key[64];
        const int len = snprintf(key, sizeof key, "%zu-%08d", producer->thread, i);
        memset(key + len, '.', (size_t)i % 40); /* all sizes, so that gaps of all sizes occur */
        key[len + i % 40] = '\0';
        put(producer->log, producer->thread, key);
        if (i % 500 == 0)
            sched_yield();
    }
    return NULL;
}

/* Each thread's lines are in its order, and lines and drops together are all there were. */
static void check_order(char *text, uint64_t written)
{
    long last[THREADS] = {-1, -1, -1};
    uint64_t count = 0;
    for (const char *line = text, *stop; (stop = strchr(line, '\n')); line = stop + 1, count++) {
        const char *const at = memmem(line, (size_t)(stop - line), "\"key\":\"", 7);
        if (!CHECK(at != NULL))
            continue;
        const int thread = at[7] - '0'; /* "0-00000042…" */
        long i = 0;
        for (int digit = 9; digit < 17; digit++)
            i = 10 * i + at[digit] - '0';
        if (CHECK(thread >= 0 && thread < THREADS)) {
            CHECK(i > last[thread]);
            last[thread] = i;
        }
    }
    CHECK_INT(count, written);
}

static void test_threads(void)
{
    const char *const path = path_of("threads");
    struct server_access_log *const log = open_log(path, THREADS);
    struct producer producers[THREADS];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        producers[i] = (struct producer){log, i};
        CHECK_INT(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(wait_for(log, THREADS * RECORDS));
    const struct server_access_log_state state = state_of(log);
    CHECK_INT(state.written + state.dropped, THREADS * RECORDS);
    CHECK_INT(state.failed, 0);
    server_access_log_close(log);
    char *const text = content_of(path);
    check_order(text, state.written);
    CHECK_INT(check_lines(text), state.written); /* reading spoils the text */
    free(text);
}

/* Now and then one record, the writer asleep in between: each is written without another's help. */
static void test_sleeper_wakes(void)
{
    struct server_access_log *const log = open_log(path_of("sleeper"), 1);
    for (uint64_t i = 1; i <= 50; i++) {
        put(log, 0, "now and then");
        CHECK(wait_for(log, i));
        weir__clock_sleep_us((int64_t)(i % 10) * 1000);
    }
    CHECK_INT(state_of(log).written, 50);
    server_access_log_close(log);
}

int main(void)
{
    if (!mkdtemp(folder)) {
        perror(folder);
        return 1;
    }
    test_fields();
    test_long_texts();
    test_sampling();
    test_reopen();
    test_refusals();
    test_slow_reader();
    test_full();
    test_half_written();
    test_threads();
    test_sleeper_wakes();
    static const char *const names[] = {"fields", "long",    "reopen.1", "fifo",
                                        "half",   "threads", "sleeper"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(path_of(names[i]));
    CHECK_INT(rmdir(folder), 0);
    return test_report();
}
