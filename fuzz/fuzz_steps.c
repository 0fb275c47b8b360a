/*
 * A byte program drives a store under a virtual clock, and docs/SPEC.md's definitions are held
 * against every answer: retry_after and reset_after are tried out, not trusted.
 *
 * The first bytes choose limits and the time to start from; then each step is a byte for the verb
 * and a few for its numbers.
 */
#include "fuzz.h"

#include "sim/virtual_clock.h"
#include "store/store.h"

#define STEPS_MAX 200
#define CELLS_MAX 1000
#define KEPT 8 /* takes and leases to settle, renew and release */

struct machine {
    struct fuzz_input input;
    struct weir__virtual_clock clock;
    weir_store *store;
    weir_limit *limit;
    char key[8];
    bool changed[2];   /* each key's states were written under other numbers */
    int64_t newest[2]; /* when each key was last written, at most */
    weir_decision taken[KEPT];
    uint64_t leases[KEPT];
    unsigned taken_count, lease_count;
};

/* ---- limits and numbers ---- */

static const char *const periods[] = {"us",    "7us", "ms",  "s",         "1s1us", "m",
                                      "1m1ms", "h",   "10s", "1h30m",     "366d",  "90s",
                                      "3ms",   "d",   "2us", "999ms999us"};
static const int64_t counts[] = {1, 2, 3, 5, 10, 100, 1000, 100000, 1000000000, WEIR_COST_MAX};

static const char *period(struct machine *m)
{
    return periods[fuzz_byte(&m->input) % WEIR__COUNT(periods)];
}

static long long count(struct machine *m)
{
    uint8_t byte = fuzz_byte(&m->input);
    return byte < 128 ? 1 + byte % 16 : counts[byte % WEIR__COUNT(counts)];
}

/* A fixed window of the calendar, of this count. */
static void put_calendar(struct machine *m, struct weir__buffer *text, long long n)
{
    static const char *const spans[] = {
        "month", "month from 31",   "month from 15", "year",
        "d",     "year from 02-29", "w from mon",    "90s",
        "7us",   "year from 07-01", "w from sun",    "month from 30"};
    static const char *const zones[] = {"",       "+14:00", "-12:00", "+05:45",
                                        "-03:30", "+08:00", "+00:01", "-00:59"};
    const char *zone = zones[fuzz_byte(&m->input) % WEIR__COUNT(zones)];
    weir__put_format(text, "fixed-window %lld/%s%s%s", n,
                     spans[fuzz_byte(&m->input) % WEIR__COUNT(spans)], *zone ? " zone " : "", zone);
}

/* One limit as text; it need not be one. The kinds have the bytes that older inputs know. */
static void put_limit(struct machine *m, struct weir__buffer *text)
{
    uint8_t kind = fuzz_byte(&m->input) % (WEIR__CONCURRENT + 1);
    uint8_t option = fuzz_byte(&m->input);
    long long n = count(m);
    const char *w = period(m);
    if (kind == WEIR__FIXED_WINDOW && option & 8) {
        put_calendar(m, text, n);
        return;
    }
    weir__put_format(text, kind == WEIR__CONCURRENT ? "%s %lld" : "%s %lld/%s",
                     weir__algorithms[kind]->name, n, w);
    if (kind == WEIR__TOKEN_BUCKET || kind == WEIR__STEPPED || kind == WEIR__LEAKY_BUCKET)
        weir__put_format(text, " burst %lld", option & 1 ? count(m) : n);
    if (kind == WEIR__STEPPED)
        weir__put_text(text, " stepped");
    if (kind == WEIR__LEAKY_BUCKET && option & 2)
        weir__put_format(text, option & 4 ? " nodelay" : " delay %lld", count(m));
    if (kind == WEIR__FROM_FIRST)
        weir__put_text(text, " from-first");
    if (kind == WEIR__SLIDING_WINDOW && option & 1)
        weir__put_format(text, " precision 1%s", period(m));
    if (kind == WEIR__SMOOTH && option & 1)
        weir__put_format(text, " burst-for 1%s", period(m));
    if (kind == WEIR__WARMUP)
        weir__put_format(text, option & 1 ? " over 1h cold 1.5" : " over 1s");
    if (kind == WEIR__CONCURRENT && option & 1)
        weir__put_format(text, " lease 2%s", "ms");
}

/* Whether the small store has room for its logs. */
static bool fits(const weir_limit *limit)
{
    for (size_t i = 0; i < limit->count; i++) {
        const struct weir__rule *rule = &limit->rules[i];
        if (weir__is_large(rule) && weir__rule_cells(rule) > CELLS_MAX)
            return false;
    }
    return true;
}

/* Other limits from now on; those that do not parse change nothing. */
static void set_limit(struct machine *m)
{
    char text[512];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    unsigned n = fuzz_byte(&m->input);
    n = n < 192 ? 1 : 2 + n % 2;
    for (unsigned i = 0; i < n; i++) {
        weir__put_text(&buffer, i > 0 ? ", " : "");
        put_limit(m, &buffer);
    }
    weir_limit *limit = NULL;
    if (weir_limit_parse(text, &limit, NULL))
        return;
    if (!fits(limit)) {
        weir_limit_free(limit);
        return;
    }
    weir_limit_free(m->limit);
    m->limit = limit;
    m->changed[0] = m->changed[1] = true;
}

static unsigned key_index(const struct machine *m)
{
    return m->key[0] == 'b';
}

static void wrote(struct machine *m)
{
    int64_t *newest = &m->newest[key_index(m)];
    *newest = weir__max(*newest, m->clock.now_us);
}

static int64_t cost(struct machine *m)
{
    uint8_t byte = fuzz_byte(&m->input);
    return byte < 200 ? byte % 16 : counts[byte % WEIR__COUNT(counts)];
}

static int64_t span(struct machine *m)
{
    static const int64_t spans[] = {0,        1,        2,          7,          999,
                                    1000,     1001,     999999,     1000000,    60000000,
                                    61000000, 86400000, 3600000000, 5400000000, WEIR_DURATION_MAX};
    uint8_t byte = fuzz_byte(&m->input);
    if (byte & 0x80)
        return (int64_t)fuzz_number(&m->input, 1 + byte % 5);
    return spans[byte % WEIR__COUNT(spans)];
}

static int64_t wait_time(struct machine *m)
{
    uint8_t byte = fuzz_byte(&m->input);
    if (byte < 128)
        return byte < 96 ? WEIR_WAIT_DEFAULT : byte < 112 ? WEIR_WAIT_ANY : 0;
    return weir__min(WEIR_DURATION_MAX, span(m));
}

/* ---- what must hold ---- */

/*
 * Whether what an answer promises about the time to come can be tried out. Not while
 *   - a state was written under other numbers: the new ones measure it until it would have been
 *     fresh under the old ones; from then on it is gone, as if it had been evicted then;
 *   - the clock is so far behind that one of several states may count as absent now, and be there
 *     again when its time comes near.
 */
static bool foreseeable(const struct machine *m)
{
    unsigned i = key_index(m);
    return !m->changed[i] && (m->limit->count == 1 || m->newest[i] - m->clock.now_us <= 60000000);
}

/* Whether this limit, or any, is one of Guava's. */
static bool is_guava(const weir_limit *limit)
{
    for (size_t i = 0; i < limit->count; i++) {
        if (limit->rules[i].kind == WEIR__SMOOTH || limit->rules[i].kind == WEIR__WARMUP)
            return true;
    }
    return false;
}

static const char *shown(const weir_decision *d)
{
    static char text[4][200];
    static unsigned next;
    char *it = text[next++ % 4];
    snprintf(it, sizeof text[0],
             "{t %lld: allowed %d, limit %lld, left %lld, retry %lld, reset %lld, delay %lld}",
             (long long)d->time_us, d->allowed, (long long)d->limit, (long long)d->remaining,
             (long long)d->retry_after_us, (long long)d->reset_after_us, (long long)d->delay_us);
    return it;
}

static void check_bounds(const struct machine *m, const weir_decision *d)
{
    EXPECT(d->remaining >= 0 && d->limit >= 1 && d->reset_after_us >= 0 && d->delay_us >= 0,
           "%s: %s", weir_limit_text(m->limit), shown(d));
    EXPECT(d->allowed ? d->retry_after_us == 0 : d->retry_after_us > 0 || d->retry_after_us == -1,
           "%s: %s", weir_limit_text(m->limit), shown(d));
    EXPECT(d->allowed || (d->delay_us == 0 && d->charged == 0), "%s: %s", weir_limit_text(m->limit),
           shown(d));
}

/* How much a row binds: of the denied the longest wait, never above all; else what is left, the
 * least first. */
static int64_t binds(const weir_decision *row, bool allowed)
{
    if (allowed)
        return -row->remaining;
    if (row->allowed)
        return -1;
    return row->retry_after_us == WEIR_NEVER ? INT64_MAX : row->retry_after_us;
}

/* The folded answer out of the rows, worked out again. */
static void check_fold(const weir_decision *rows, size_t n, const weir_decision *folded)
{
    bool allowed = true;
    int64_t reset = 0, delay = 0;
    size_t binding = n - 1;
    for (size_t i = 0; i < n; i++) {
        allowed = allowed && rows[i].allowed;
        reset = weir__max(reset, rows[i].reset_after_us);
        delay = weir__max(delay, rows[i].delay_us);
    }
    while (n-- > 0) /* from the end, so that the first of equals is found last */
        binding = binds(&rows[n], allowed) >= binds(&rows[binding], allowed) ? n : binding;
    EXPECT(folded->binding == binding, "binding %d, expected %zu", folded->binding, binding);
    EXPECT(folded->allowed == allowed && folded->limit == rows[binding].limit &&
               folded->remaining == rows[binding].remaining &&
               folded->retry_after_us == rows[binding].retry_after_us &&
               folded->reset_after_us == reset && folded->delay_us == (allowed ? delay : 0),
           "%s is not the fold", shown(folded));
}

static weir_decision peek(struct machine *m, const char *key, int64_t at, int64_t c, int64_t wait)
{
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    weir_request request = {.key = weir_key_text(key),
                            .limit = m->limit,
                            .cost = c ? c : WEIR_COST_NONE,
                            .wait_us = wait,
                            .detail = rows};
    int64_t now = m->clock.now_us;
    m->clock.now_us = at;
    int code = weir_peek_all(m->store, &request, 1, &folded);
    m->clock.now_us = now;
    EXPECT(code == 0, "%s: peek: %s", weir_limit_text(m->limit), weir_strerror(code));
    check_bounds(m, &folded);
    for (size_t i = 0; i < m->limit->count; i++)
        check_bounds(m, &rows[i]);
    check_fold(rows, m->limit->count, &folded);
    return folded;
}

static bool in_time(int64_t now, int64_t after)
{
    return after >= 0 && after < WEIR__EXACT_MAX - now;
}

/* retry_after: then it is allowed, and not a microsecond before. */
static void try_retry(struct machine *m, const weir_decision *d, int64_t c, int64_t wait)
{
    if (!foreseeable(m) || d->allowed || !in_time(m->clock.now_us, d->retry_after_us))
        return;
    int64_t when = m->clock.now_us + d->retry_after_us;
    weir_decision then = peek(m, m->key, when, c, wait);
    EXPECT(then.allowed, "%s, cost %lld, wait %lld: %s but then %s", weir_limit_text(m->limit),
           (long long)c, (long long)wait, shown(d), shown(&then));
    weir_decision before = peek(m, m->key, when - 1, c, wait);
    EXPECT(!before.allowed && before.retry_after_us == 1,
           "%s, cost %lld, wait %lld: %s but just before %s", weir_limit_text(m->limit),
           (long long)c, (long long)wait, shown(d), shown(&before));
}

/* reset_after: then no answer differs from a fresh key's, and just before one still does. */
static void try_reset(struct machine *m, const weir_decision *d)
{
    if (!foreseeable(m) || is_guava(m->limit) || !in_time(m->clock.now_us, d->reset_after_us))
        return;
    int64_t when = m->clock.now_us + d->reset_after_us;
    const int64_t asked[] = {0, 1, d->limit, d->limit + 1};
    for (size_t i = 0; i < WEIR__COUNT(asked); i++) {
        int64_t c = weir__min(asked[i], WEIR_COST_MAX);
        weir_decision then = peek(m, m->key, when, c, WEIR_WAIT_DEFAULT);
        weir_decision fresh = peek(m, "fresh", when, c, WEIR_WAIT_DEFAULT);
        EXPECT(!memcmp(&then, &fresh, sizeof then), "%s, cost %lld: %s but then %s, fresh %s",
               weir_limit_text(m->limit), (long long)c, shown(d), shown(&then), shown(&fresh));
    }
    if (d->reset_after_us > 0) {
        weir_decision before = peek(m, m->key, when - 1, 0, WEIR_WAIT_DEFAULT);
        EXPECT(before.reset_after_us == 1, "%s: %s but just before %s", weir_limit_text(m->limit),
               shown(d), shown(&before));
    }
}

/* remaining: that much goes at once, one more does not; of a denial it is the binding limit's
 * alone. */
static void try_remaining(struct machine *m, const weir_decision *d)
{
    if (!d->allowed || is_guava(m->limit) || d->remaining < 1 || d->remaining >= WEIR_COST_MAX)
        return;
    weir_decision all = peek(m, m->key, m->clock.now_us, d->remaining, WEIR_WAIT_DEFAULT);
    weir_decision more = peek(m, m->key, m->clock.now_us, d->remaining + 1, WEIR_WAIT_DEFAULT);
    EXPECT(all.allowed && !more.allowed, "%s: %s: all of it %s, one more %s",
           weir_limit_text(m->limit), shown(d), shown(&all), shown(&more));
}

/* ---- steps ---- */

static void ask(struct machine *m)
{
    int64_t c = cost(m), wait = wait_time(m);
    weir_decision d = peek(m, m->key, m->clock.now_us, c, wait);
    try_retry(m, &d, c, wait);
    try_reset(m, &d);
    try_remaining(m, &d);
}

static bool same_judgement(const weir_decision *a, const weir_decision *b)
{
    return a->allowed == b->allowed && (a->binding != b->binding || a->limit == b->limit) &&
           a->retry_after_us == b->retry_after_us && a->delay_us == b->delay_us;
}

/* A take answers as the peek before it; what it leaves is what a peek then sees. */
static void take(struct machine *m, bool acquire)
{
    weir_decision rows[WEIR_LIMITS_MAX], d;
    int64_t c = cost(m), wait = wait_time(m);
    if (acquire && weir__leased(m->limit) == m->limit->count)
        acquire = false;
    weir_decision before = peek(m, m->key, m->clock.now_us, c, wait);
    weir_request request = {.key = weir_key_text(m->key),
                            .limit = m->limit,
                            .cost = c ? c : WEIR_COST_NONE,
                            .wait_us = wait,
                            .detail = rows,
                            .acquire = acquire};
    bool short_form = !acquire && wait == WEIR_WAIT_DEFAULT;
    int code = short_form ? weir_take(m->store, request.key, m->limit, c, &d)
                          : weir_take_all(m->store, &request, 1, &d);
    if (code == WEIR_EFULL)
        return;
    EXPECT(code == 0, "%s: take: %s", weir_limit_text(m->limit), weir_strerror(code));
    EXPECT(same_judgement(&before, &d), "%s: peek %s, take %s", weir_limit_text(m->limit),
           shown(&before), shown(&d));
    check_bounds(m, &d);
    EXPECT(d.charged == (d.allowed ? c : 0), "charged %lld", (long long)d.charged);
    weir_decision after = peek(m, m->key, m->clock.now_us, 0, WEIR_WAIT_DEFAULT);
    EXPECT((after.binding != d.binding || after.remaining == d.remaining) &&
               after.reset_after_us == d.reset_after_us,
           "%s: take %s, then peek %s", weir_limit_text(m->limit), shown(&d), shown(&after));
    if (d.charged > 0) {
        m->changed[key_index(m)] = false;
        wrote(m);
    }
    try_reset(m, &d);
    m->taken[m->taken_count++ % KEPT] = d;
    if (d.lease)
        m->leases[m->lease_count++ % KEPT] = d.lease;
}

static void settle(struct machine *m)
{
    char receipt[WEIR_RECEIPT_SIZE];
    weir_receipt(&m->taken[fuzz_byte(&m->input) % KEPT], receipt);
    int code = weir_settle(m->store, weir_key_text(m->key), m->limit, receipt, cost(m), NULL);
    EXPECT(code == 0 || code == WEIR_EUNSUPPORTED || code == WEIR_EFULL || code == WEIR_ESETTLED,
           "settle: %s", weir_strerror(code));
    wrote(m);
}

static void change_lease(struct machine *m, bool renew)
{
    uint64_t lease = m->leases[fuzz_byte(&m->input) % KEPT];
    bool leased = weir__leased(m->limit) < m->limit->count;
    int code =
        (renew ? weir_renew : weir_release)(m->store, weir_key_text(m->key), m->limit, lease);
    EXPECT(leased ? code == 0 || code == WEIR_ENOLEASE : code == WEIR_EUNSUPPORTED, "lease: %s",
           weir_strerror(code));
    wrote(m);
    if (code == 0 && !renew)
        EXPECT(weir_release(m->store, weir_key_text(m->key), m->limit, lease) == WEIR_ENOLEASE,
               "released twice");
}

static void move_clock(struct machine *m, int64_t by)
{
    m->clock.now_us = weir__max(0, weir__min(WEIR__EXACT_MAX - 1, m->clock.now_us + by));
}

static void reset(struct machine *m)
{
    EXPECT(weir_reset(m->store, weir_key_text(m->key)) == 0, "reset");
    weir_decision d = peek(m, m->key, m->clock.now_us, 1, WEIR_WAIT_DEFAULT);
    weir_decision fresh = peek(m, "fresh", m->clock.now_us, 1, WEIR_WAIT_DEFAULT);
    EXPECT(!memcmp(&d, &fresh, sizeof d), "after a reset %s", shown(&d));
}

static void step(struct machine *m)
{
    uint8_t verb = fuzz_byte(&m->input) % 16;
    if (verb < 4)
        take(m, false);
    else if (verb < 7)
        ask(m);
    else if (verb < 10)
        move_clock(m, span(m));
    else if (verb == 10)
        move_clock(m, -span(m));
    else if (verb == 11)
        settle(m);
    else if (verb == 12)
        take(m, true);
    else if (verb == 13)
        change_lease(m, fuzz_byte(&m->input) & 1);
    else if (verb == 14)
        set_limit(m);
    else
        m->input.size & 1 ? reset(m) : (void)(m->key[0] = (char)('a' + fuzz_byte(&m->input) % 2));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t starts[] = {INT64_C(1700000000000000), 0, WEIR__EXACT_MAX - 100000000,
                                     59999999};
    struct machine m = {.input = {data, size}, .key = "a"};
    weir_error err = {0};
    fuzz_random_reset();
    m.clock.now_us = starts[fuzz_byte(&m.input) % WEIR__COUNT(starts)];
    set_limit(&m);
    if (!m.limit)
        return 0;
    EXPECT(weir_store_open("memory:256k?large=50%", &m.store, &err) == 0, "%s", err.message);
    weir__virtual_clock_install(&m.clock, m.store);
    for (int i = 0; i < STEPS_MAX && m.input.size > 0; i++)
        step(&m);
    EXPECT(weir_store_check(m.store, &err) == 0, "%s", err.message);
    weir_store_close(m.store);
    weir_limit_free(m.limit);
    return 0;
}
