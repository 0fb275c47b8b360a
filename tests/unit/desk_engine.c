/*
 * The engine of the desk: many candidates at once decide what each decides alone, peaks of keys are
 * those of a plain count, a candidate for all keys has one state, and when the memory is used up,
 * keys are forgotten and that is told.
 *
 *     desk_engine [SEED]
 */
#include "base/hash.h"
#include "desk/flow.h"
#include "desk/suggest.h"
#include "test.h"

#define KEYS 50
#define ARRIVALS 20000

static uint64_t state;

static uint64_t chance(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (state >> 33) % below;
}

struct request {
    int64_t time_us, cost;
    unsigned key;
};

static struct request requests[ARRIVALS];

static void draw(void)
{
    int64_t now = INT64_C(1794787200000000);
    for (size_t i = 0; i < ARRIVALS; i++) {
        now += (int64_t)chance(chance(10) ? 40000 : 4000000);
        requests[i] = (struct request){now, 1 + (int64_t)chance(3), (unsigned)chance(KEYS)};
    }
}

static struct desk_arrival arrival_of(const struct request *request, char text[32])
{
    static const uint64_t secret[2] = {1, 2};
    struct desk_arrival arrival = {.time_us = request->time_us, .cost = request->cost};
    arrival.key = (struct weir__span){text, (size_t)snprintf(text, 32, "key%u", request->key)};
    weir__hash(secret, arrival.key.data, arrival.key.len, arrival.hash);
    return arrival;
}

static struct desk_engine *engine_of(const struct desk_candidate *candidates, size_t count,
                                     int64_t memory, bool peaks)
{
    struct desk_engine_options options = {.candidates = candidates,
                                          .count = count,
                                          .wait_us = WEIR_WAIT_DEFAULT,
                                          .memory = memory,
                                          .peaks = peaks};
    struct desk_engine *engine = NULL;
    weir_error err;
    CHECK_INT(desk_engine_make(&options, &engine, &err), 0);
    return engine;
}

static void take_all(struct desk_engine *engine)
{
    for (size_t i = 0; i < ARRIVALS; i++) {
        char text[32];
        struct desk_arrival arrival = arrival_of(&requests[i], text);
        if (desk_engine_take(engine, &arrival, NULL))
            CHECK(!"no memory");
    }
    desk_engine_end(engine);
}

static const char *const texts[] = {
    "token-bucket 2/s burst 5",
    "sliding-counter 9/10s",
    "fixed-window 30/m",
    "sliding-log 8/10s",
    "leaky-bucket 1/s burst 3",
    "sliding-window 9/10s precision 1s",
    "token-bucket 30/m, fixed-window 99/h",
    "token-bucket 1/s burst 4",
};
#define COUNT WEIR__COUNT(texts)

static void limits_make(weir_limit *limits[COUNT], struct desk_candidate candidates[COUNT])
{
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_INT(weir_limit_parse(texts[i], &limits[i], NULL), 0);
        candidates[i] = (struct desk_candidate){texts[i], limits[i], false, false};
    }
}

static void limits_free(weir_limit *limits[COUNT])
{
    for (size_t i = 0; i < COUNT; i++)
        weir_limit_free(limits[i]);
}

/* Together as alone: totals, keys, and every key's denials. */
static void test_together(void)
{
    weir_limit *limits[COUNT];
    struct desk_candidate candidates[COUNT];
    limits_make(limits, candidates);
    struct desk_engine *together = engine_of(candidates, COUNT, 0, true);
    take_all(together);
    for (size_t c = 0; c < COUNT; c++) {
        struct desk_engine *alone = engine_of(&candidates[c], 1, 0, false);
        take_all(alone);
        const struct desk_tally *a = &together->tallies[c], *b = &alone->tallies[0];
        CHECK_INT(a->allowed + a->denied, ARRIVALS);
        CHECK_INT(a->denied, b->denied);
        CHECK_INT(a->delayed, b->delayed);
        CHECK_INT(a->keys_denied, b->keys_denied);
        CHECK_INT(a->rates->highest[0], b->rates->highest[0]);
        CHECK(a->denied > 0);
        for (size_t i = 0; i < alone->entries; i++) {
            const struct desk_key *key = desk_engine_key(alone, i);
            const struct desk_key *same = desk_engine_find(together, key->hash);
            CHECK(same &&
                  desk_key_mark(together, same, c)->denied == desk_key_mark(alone, key, 0)->denied);
            CHECK(desk_key_peaks(alone, key) == NULL);
        }
        desk_engine_free(alone);
    }
    CHECK_INT(together->keys, KEYS);
    CHECK(!desk_engine_is_lossy(together));
    desk_engine_free(together);
    limits_free(limits);
}

/* The most cost that a key has in one span of the clock, counted plainly. */
static int64_t peak_of(unsigned key, int64_t span_us)
{
    int64_t most = 0, sum = 0, bin = -1;
    for (size_t i = 0; i < ARRIVALS; i++) {
        if (requests[i].key != key)
            continue;
        if (requests[i].time_us / span_us != bin)
            sum = 0;
        bin = requests[i].time_us / span_us;
        sum += requests[i].cost;
        most = sum > most ? sum : most;
    }
    return most;
}

static void test_peaks(void)
{
    weir_limit *limit;
    CHECK_INT(weir_limit_parse("token-bucket 1/s", &limit, NULL), 0);
    struct desk_candidate candidate = {.name = "one", .limit = limit};
    struct desk_engine *engine = engine_of(&candidate, 1, 0, true);
    take_all(engine);
    for (unsigned key = 0; key < KEYS; key++) {
        char text[32];
        struct desk_arrival arrival = arrival_of(&(struct request){1, 1, key}, text);
        const struct desk_key *known = desk_engine_find(engine, arrival.hash);
        CHECK(known != NULL);
        const struct desk_peak *peaks = known ? desk_key_peaks(engine, known) : NULL;
        for (size_t i = 0; i < DESK_PEAKS && peaks; i++)
            CHECK_INT(peaks[i].peak, peak_of(key, desk_peak_us[i]));
    }
    desk_engine_free(engine);
    weir_limit_free(limit);
}

/* One state for all keys is what all requests under one key get; each key has its own denials. */
static void test_total(void)
{
    const char *const some[] = {"sliding-log 8/s", "token-bucket 3/s burst 9",
                                "leaky-bucket 5/s burst 2"};
    weir_limit *limits[3];
    struct desk_candidate total[3], plain[3];
    for (size_t i = 0; i < 3; i++) {
        CHECK_INT(weir_limit_parse(some[i], &limits[i], NULL), 0);
        total[i] = (struct desk_candidate){some[i], limits[i], true, false};
        plain[i] = (struct desk_candidate){some[i], limits[i], false, false};
    }
    struct desk_engine *all = engine_of(total, 3, 0, false), *one = engine_of(plain, 3, 0, false);
    take_all(all);
    for (size_t i = 0; i < ARRIVALS; i++) {
        char text[32];
        struct request same = requests[i];
        same.key = 7;
        struct desk_arrival arrival = arrival_of(&same, text);
        CHECK_INT(desk_engine_take(one, &arrival, NULL), 0);
    }
    desk_engine_end(one);
    for (size_t c = 0; c < 3; c++) {
        int64_t denied = 0;
        CHECK_INT(all->tallies[c].denied, one->tallies[c].denied);
        CHECK_INT(all->tallies[c].delayed, one->tallies[c].delayed);
        CHECK_INT(all->tallies[c].states_peak, 1);
        CHECK(all->tallies[c].denied > 0 && all->tallies[c].keys_denied > 1);
        for (size_t i = 0; i < all->entries; i++)
            denied += desk_key_mark(all, desk_engine_key(all, i), c)->denied;
        CHECK_INT(denied, all->tallies[c].denied);
    }
    desk_engine_free(all);
    desk_engine_free(one);
    for (size_t i = 0; i < 3; i++)
        weir_limit_free(limits[i]);
}

/* More keys than the memory can hold: the bound is kept, it is told, and sums still hold. */
static void test_memory(void)
{
    enum { MANY = 40000 };
    weir_limit *limits[COUNT];
    struct desk_candidate candidates[COUNT];
    limits_make(limits, candidates);
    struct desk_engine *engine = engine_of(candidates, COUNT, DESK_MEMORY_LEAST, true);
    int64_t now = INT64_C(1794787200000000);
    for (unsigned i = 0; i < 3 * MANY; i++) {
        char text[32];
        struct request request = {now += 50, 1, i % 3 ? i % MANY : i % 5};
        struct desk_arrival arrival = arrival_of(&request, text);
        if (desk_engine_take(engine, &arrival, NULL))
            CHECK(!"no memory");
        if (engine->used > DESK_MEMORY_LEAST + (512 << 10))
            CHECK(!"over the bound");
    }
    desk_engine_end(engine);
    bool about;
    int64_t distinct = desk_engine_distinct(engine, &about);
    CHECK(about && desk_engine_is_lossy(engine) && engine->forgotten >= engine->lossy);
    CHECK(distinct > MANY * 2 / 3 * 9 / 10 && distinct < MANY * 11 / 10);
    CHECK_INT(engine->requests, 3 * MANY);
    for (size_t c = 0; c < COUNT; c++) {
        const struct desk_tally *tally = &engine->tallies[c];
        CHECK_INT(tally->allowed + tally->denied, 3 * MANY);
        CHECK(tally->requests_of_denied <= engine->requests);
    }
    desk_engine_free(engine);
    limits_free(limits);
}

/* ---- through two threads ---- */

struct source {
    size_t at;
    char text[32];
    struct desk_engine *engine;
};

static int source_next(void *context, struct desk_arrival *ret, weir_error *err)
{
    struct source *source = context;
    (void)err;
    if (source->at == ARRIVALS)
        return DESK_END;
    *ret = arrival_of(&requests[source->at++], source->text);
    return DESK_ARRIVAL;
}

static int source_take(void *context, const struct desk_arrival *arrival, weir_error *err)
{
    (void)err;
    return desk_engine_take(((struct source *)context)->engine, arrival, NULL);
}

/* A thread that reads and one that decides find what one alone finds. */
static void test_flow(void)
{
    weir_limit *limits[COUNT];
    struct desk_candidate candidates[COUNT];
    limits_make(limits, candidates);
    struct desk_engine *plain = engine_of(candidates, COUNT, 0, true);
    struct source source = {.engine = engine_of(candidates, COUNT, 0, true)};
    struct desk_flow flow = {.source = &source,
                             .next = source_next,
                             .context = &source,
                             .take = source_take,
                             .engine = source.engine};
    weir_error err;
    take_all(plain);
    CHECK_INT(desk_flow_run(&flow, &err), 0);
    desk_engine_end(source.engine);
    for (size_t c = 0; c < COUNT; c++)
        CHECK_INT(source.engine->tallies[c].denied, plain->tallies[c].denied);
    desk_engine_free(plain);
    desk_engine_free(source.engine);
    limits_free(limits);
}

/* ---- suggestions ---- */

static int suggest_read(void *context, struct desk_pass *pass, weir_error *err)
{
    (void)context, (void)err;
    for (size_t i = 0; i < ARRIVALS; i++) {
        char text[32];
        struct desk_arrival arrival = arrival_of(&requests[i], text);
        int code = desk_pass_take(pass, &arrival);
        if (code)
            return code;
    }
    return 0;
}

static int suggest_fail(void *context, struct desk_pass *pass, weir_error *err)
{
    int *left = context;
    if ((*left)-- == 0)
        return weir__fail(err, WEIR_ESYSTEM, 0, "it is gone");
    return suggest_read(NULL, pass, err);
}

static void test_suggest(void)
{
    static const char *const spare[] = {"key3"};
    struct desk_suggest_options options = {.goal = {.keys = 100000, .requests = -1},
                                           .memory = DESK_MEMORY_USUAL,
                                           .read = suggest_read};
    struct desk_suggest *suggest;
    weir_error err;
    CHECK_INT(desk_suggest(&options, &suggest, &err), 0);
    CHECK(suggest->count >= 1 && suggest->judged);
    CHECK_INT(suggest->parts[0].requests + suggest->parts[1].requests, ARRIVALS);
    CHECK_INT(suggest->parts[0].to_us % 1000000, 0);
    for (size_t i = 0; i < suggest->count; i++)
        CHECK(suggest->suggestions[i].chosen.keys_denied <= KEYS / 10);
    desk_suggest_free(suggest);
    options.spare = spare;
    options.spare_count = 1;
    options.can_exempt = true;
    CHECK_INT(desk_suggest(&options, &suggest, &err), 0);
    CHECK_INT(suggest->whole->spared_keys, 1);
    for (size_t i = 0; i < suggest->count; i++)
        CHECK_INT(suggest->suggestions[i].chosen.spared_denied, 0);
    desk_suggest_free(suggest);
    for (int passes = 0; passes < 5; passes++) { /* whenever reading fails, all is freed */
        int left = passes;
        options.context = &left;
        options.read = suggest_fail;
        CHECK_INT(desk_suggest(&options, &suggest, &err), WEIR_ESYSTEM);
        desk_suggest_free(suggest);
    }
}

static void test_numbers(void)
{
    for (int i = 1; i < DESK_NICE; i++)
        CHECK(desk_nice[i] > desk_nice[i - 1] && desk_nice[i] <= 2 * desk_nice[i - 1]);
    CHECK_INT(desk_nice[DESK_NICE - 1], INT64_C(1000000000000));
    CHECK_INT(desk_nice[desk_nice_up(1)], 1);
    CHECK_INT(desk_nice[desk_nice_up(11)], 15);
    CHECK_INT(desk_nice[desk_nice_up(50)], 50);
    CHECK_INT(desk_nice[desk_nice_up(INT64_MAX)], INT64_C(1000000000000));
    struct desk_share share = desk_share_of(3, 289, 1.96);
    CHECK(share.low > 0.0035 && share.low < 0.0036 && share.high > 0.030 && share.high < 0.0301);
    share = desk_share_of(0, 100, 1.96);
    CHECK(share.low == 0 && share.high > 0.036 && share.high < 0.038);
    share = desk_share_of(0, 0, 1.96);
    CHECK(share.low == 0 && share.high == 1);
    share = desk_share_of(5, 5, 1.96);
    CHECK(share.part == 1 && share.high == 1 && share.low < 1);
}

/* Of two that are equally good, the one that needs no exemption comes first. */
static void test_order(void)
{
    struct desk_suggest suggest = {.count = 2};
    for (size_t i = 0; i < suggest.count; i++)
        suggest.suggestions[i] = (struct desk_suggestion){
            .kind = i ? DESK_KIND_WINDOW : DESK_KIND_BUCKET,
            .meets = true,
            .exempt = i == 0,
            .outcome = {.others_keys_denied = 3, .stopped_denied = 100 - 10 * (int64_t)i}};
    CHECK(desk_choose_order(&suggest));
    CHECK(!suggest.suggestions[0].exempt && suggest.suggestions[0].kind == DESK_KIND_WINDOW);
    CHECK(!desk_choose_order(&suggest));
    suggest.suggestions[1].outcome.others_keys_denied = 2; /* gentler: that counts more */
    CHECK(desk_choose_order(&suggest) && suggest.suggestions[0].exempt);
    suggest.suggestions[1].outcome.suspects_denied = 10; /* who stops suspects counts even more */
    CHECK(desk_choose_order(&suggest) && !suggest.suggestions[0].exempt);
    suggest.suggestions[1].heavy = true;
    suggest.suggestions[1].outcome.suspects_denied = 20; /* not twice as much: it stays the last */
    CHECK(!desk_choose_order(&suggest));
    suggest.suggestions[1].chosen.suspects_denied = 1;
    CHECK(desk_choose_order(&suggest) && suggest.suggestions[0].heavy);
}

/* One that mostly denies good keys comes behind others that meet the goal, however little these
 * stop; but before one that misses it. */
static void test_order_of_good(void)
{
    struct desk_suggest suggest = {.count = 2};
    suggest.suggestions[0] = (struct desk_suggestion){
        .meets = true,
        .hurts_people = true,
        .outcome = {.others_keys_denied = 1, .stopped_denied = 100, .suspects_denied = 9}};
    suggest.suggestions[1] = (struct desk_suggestion){
        .kind = DESK_KIND_WINDOW, .outcome = {.others_keys_denied = 2, .stopped_denied = 1}};
    CHECK(!desk_choose_order(&suggest));
    suggest.suggestions[1].meets = true;
    CHECK(desk_choose_order(&suggest) && !suggest.suggestions[0].hurts_people);
    suggest.suggestions[1].hurts_people = false; /* as if it were one key with one agent */
    CHECK(desk_choose_order(&suggest) && suggest.suggestions[0].outcome.stopped_denied == 100);
}

int main(int argc, char **argv)
{
    state = test_seed(argc > 1 ? argv[1] : NULL);
    draw();
    test_together();
    test_peaks();
    test_total();
    test_memory();
    test_flow();
    test_suggest();
    test_numbers();
    test_order();
    test_order_of_good();
    return test_report();
}
