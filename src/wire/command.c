/* See command.h; and the table of verbs.h. */
#include "wire/command.h"

#include "core/core.h"

/* ---- verbs ---- */

enum { LUA = WEIR__VERB_LUA, MODULE = WEIR__VERB_MODULE, RESP = WEIR__VERB_RESP };
enum { HTTP = WEIR__VERB_HTTP };

#define X(constant, number, family, word, keys, caller, homes)                                     \
    [number] = {family word, word, WEIR__VERB_##keys, WEIR__VERB_##caller, homes},
const struct weir__verb_facts weir__verbs[WEIR__VERB_COUNT] = {WEIR__VERBS(X)};
#undef X

/* Numbers are given in order, without gaps: the table has no empty row. */
enum {
#define X(constant, ...) VERB_AT_##constant,
    WEIR__VERBS(X)
#undef X
};
#define X(constant, number, ...) _Static_assert(VERB_AT_##constant == (number), "numbers in order");
WEIR__VERBS(X)
#undef X

bool weir__verb_of_name(const char *name, size_t len, enum weir__verb *ret)
{
    if (WEIR__LIKELY(len == 9 &&
                     (!memcmp(name, "WEIR.TAKE", 9) || !memcmp(name, "weir.take", 9)))) {
        *ret = WEIR__VERB_TAKE; /* nearly every command, as nearly everybody writes it */
        return true;
    }
    for (int verb = 0; verb < WEIR__VERB_COUNT; verb++) {
        const char *known = weir__verbs[verb].name;
        size_t i = 0; /* letter by letter: one call per name would take longer */
        while (i < len && known[i] &&
               (name[i] == known[i] ||
                (name[i] >= 'A' && name[i] <= 'Z' && (name[i] | 32) == known[i])))
            i++;
        if (i == len && !known[i]) {
            *ret = (enum weir__verb)verb;
            return true;
        }
    }
    return false;
}

bool weir__verb_of_word(const char *word, size_t len, enum weir__verb *ret)
{
    for (int verb = 0; verb < WEIR__VERB_COUNT; verb++) {
        const char *known = weir__verbs[verb].word;
        if (strlen(known) == len && !memcmp(known, word, len)) {
            *ret = (enum weir__verb)verb;
            return true;
        }
    }
    return false;
}

/* ---- arguments ---- */

#define COMMAND_SHOWN_MAX 40 /* bytes of a wrong argument that are repeated */

static int command_wrong_count(enum weir__verb verb, weir_error *err)
{
    return weir__fail(err, WEIR_EINVAL, 0, "wrong number of arguments for '%s' command",
                      weir__verbs[verb].name);
}

static int command_shown(struct weir__span text)
{
    return (int)(text.len > COMMAND_SHOWN_MAX ? COMMAND_SHOWN_MAX : text.len);
}

int weir__read_whole(struct weir__span text, const char *what, int64_t least, int64_t most,
                     int64_t *ret, weir_error *err)
{
    if (text.len >= 20 || !weir__span_whole(text, least, most, ret))
        return weir__fail(err, WEIR_EINVAL, 0,
                          "%s must be a whole number from %lld to %lld, not \"%.*s\"", what,
                          (long long)least, (long long)most, command_shown(text), text.data);
    return 0;
}

static int command_read_key(struct weir__span text, weir_key *ret, weir_error *err)
{
    if (text.len < 1 || text.len > WEIR_KEY_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "a key has 1 to %d bytes, this one has %zu",
                          WEIR_KEY_MAX, text.len);
    *ret = weir_key_bytes(text.data, text.len);
    return 0;
}

static int command_read_limit(struct weir__limit_cache *cache, struct weir__span text,
                              const weir_limit **ret, weir_error *err)
{
    weir_error inner;
    const weir_limit *limit = weir__limit_cached(cache, text.data, text.len, &inner);
    if (!limit)
        return weir__fail(err, inner.code, inner.column, "limit: %.480s", inner.message);
    *ret = limit;
    return 0;
}

static int command_read_wait(struct weir__span text, int64_t *ret, weir_error *err)
{
    if (weir__span_is_word(text, "any")) {
        *ret = WEIR_WAIT_ANY;
        return 0;
    }
    return weir__read_whole(text, "WAIT", 0, WEIR_DURATION_MAX, ret, err);
}

/* The number behind LEAST, or of TAKEALL one per key, 0: all of its cost. */
static int command_read_least(const struct weir__span *args, struct weir__command *ret,
                              weir_error *err)
{
    int64_t from = ret->verb == WEIR__VERB_TAKEALL ? 0 : 1;
    int code = 0;
    for (size_t i = 0; i < ret->count && code == 0; i++)
        code = weir__read_whole(args[i], "LEAST", from, WEIR_COST_MAX, &ret->asks[i].least, err);
    ret->tells_granted = true;
    return code;
}

/* Whether what LEAST says can be granted, once the rest is read. */
static int command_check_least(const struct weir__command *command, weir_error *err)
{
    for (size_t i = 0; i < command->count && command->tells_granted; i++) {
        const struct weir__command_ask *ask = &command->asks[i];
        weir_request request = weir_request_make(ask->key, ask->limit);
        request.cost = ask->cost;
        request.wait_us = command->wait_us;
        request.least = ask->least;
        int code = ask->least ? weir__least_check(&request, err) : 0;
        if (code)
            return code;
    }
    const struct weir__budget budget = weir__command_budget(command);
    if (budget.least <= budget.most)
        return 0;
    return weir__fail(
        err, WEIR_EINVAL, 0,
        "invalid LEAST %lld: expected at most %lld, the cost of another key, since all "
        "get the same",
        (long long)budget.least, (long long)budget.most);
}

struct weir__budget weir__command_budget(const struct weir__command *command)
{
    struct weir__budget ret = {0, WEIR_COST_MAX};
    for (size_t i = 0; i < command->count && command->tells_granted; i++) {
        if (!command->asks[i].least)
            continue;
        ret.least = weir__max(ret.least, command->asks[i].least);
        ret.most = weir__min(ret.most, command->asks[i].cost);
    }
    return ret;
}

static int command_read_lease_id(struct weir__span text, uint64_t *ret, weir_error *err)
{
    int64_t id = 0;
    int code = weir__read_whole(text, "a lease id", 1, (int64_t)WEIR__LEASE_MASK, &id, err);
    *ret = (uint64_t)id;
    return code;
}

/* [COST n] [LEAST n] [WAIT us|any] [LEASE id] [DETAIL], each once. */
static int command_read_options(const struct weir__span *args, size_t n, bool with_cost,
                                struct weir__command *ret, weir_error *err)
{
    bool cost = false, wait = false;
    int code = 0;
    for (size_t at = 0; at < n && code == 0;) {
        bool value = at + 1 < n;
        if (weir__span_is_word(args[at], "DETAIL") && !ret->detail) {
            ret->detail = true;
            at += 1;
        } else if (weir__span_is_word(args[at], "WAIT") && value && !wait) {
            wait = true;
            code = command_read_wait(args[at + 1], &ret->wait_us, err);
            at += 2;
        } else if (weir__span_is_word(args[at], "LEAST") && n - at > ret->count &&
                   !ret->tells_granted) {
            code = command_read_least(args + at + 1, ret, err);
            at += 1 + ret->count;
        } else if (!with_cost && weir__span_is_word(args[at], "ACQUIRE") && !ret->acquires) {
            ret->acquires = true;
            at++;
        } else if (with_cost && weir__span_is_word(args[at], "COST") && value && !cost) {
            cost = true;
            code =
                weir__read_whole(args[at + 1], "COST", 0, WEIR_COST_MAX, &ret->asks[0].cost, err);
            at += 2;
        } else if (ret->acquires && weir__span_is_word(args[at], "LEASE") && value && !ret->lease) {
            code = command_read_lease_id(args[at + 1], &ret->lease, err);
            at += 2;
        } else {
            return weir__fail(err, WEIR_EINVAL, 0,
                              "expected %s[WAIT us|any] %s[DETAIL], each once, found \"%.*s\"",
                              with_cost ? "[COST n] [LEAST n] " : "[LEAST n …] [ACQUIRE] ",
                              ret->acquires ? "[LEASE id] " : "", command_shown(args[at]),
                              args[at].data);
        }
    }
    return code;
}

static int command_read_take(const struct weir__span *args, size_t n,
                             struct weir__limit_cache *cache, struct weir__command *ret,
                             weir_error *err)
{
    if (n < 3)
        return command_wrong_count(ret->verb, err);
    int code = command_read_key(args[1], &ret->asks[0].key, err);
    if (code == 0 && n > 3)
        code = command_read_options(args + 3, n - 3, true, ret, err);
    if (code == 0)
        code = command_read_limit(cache, args[2], &ret->asks[0].limit, err);
    return code ? code : command_check_least(ret, err);
}

static bool command_has_leases(const struct weir__command *command)
{
    for (size_t i = 0; i < command->count; i++) {
        if (weir__has_leases(command->asks[i].limit))
            return true;
    }
    return false;
}

static int command_read_take_all(const struct weir__span *args, size_t n,
                                 struct weir__limit_cache *cache, struct weir__command *ret,
                                 weir_error *err)
{
    int64_t keys = 0;
    size_t limits = 0;
    if (n < 5)
        return command_wrong_count(ret->verb, err);
    int code = weir__read_whole(args[1], "the number of keys", 1, WEIR_LIMITS_MAX, &keys, err);
    if (code)
        return code;
    ret->count = (size_t)keys;
    if (n < 2 + 3 * ret->count)
        return weir__fail(err, WEIR_EINVAL, 0, "expected %lld times: key limits cost",
                          (long long)keys);
    for (size_t i = 0; i < ret->count && code == 0; i++) {
        const struct weir__span *it = args + 2 + 3 * i;
        struct weir__command_ask *ask = &ret->asks[i];
        ask->least = 0;
        code = command_read_key(it[0], &ask->key, err);
        if (code == 0)
            code = weir__read_whole(it[2], "a cost", 0, WEIR_COST_MAX, &ask->cost, err);
        if (code == 0)
            code = command_read_limit(cache, it[1], &ask->limit, err);
        limits += code ? 0 : weir_limit_count(ask->limit);
    }
    if (code == 0 && limits > WEIR_LIMITS_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "expected at most %d limits per request, found %zu",
                          WEIR_LIMITS_MAX, limits);
    if (code == 0)
        code = command_read_options(args + 2 + 3 * ret->count, n - 2 - 3 * ret->count, false, ret,
                                    err);
    if (code == 0 && ret->acquires && !command_has_leases(ret))
        return weir__fail(err, WEIR_EINVAL, 0,
                          "there is nothing to acquire: none of the limits is concurrent");
    return code ? code : command_check_least(ret, err);
}

static int command_read_key_and_limit(const struct weir__span *args,
                                      struct weir__limit_cache *cache, struct weir__command *ret,
                                      weir_error *err)
{
    int code = command_read_key(args[1], &ret->asks[0].key, err);
    return code ? code : command_read_limit(cache, args[2], &ret->asks[0].limit, err);
}

static int command_read_settle(const struct weir__span *args, size_t n,
                               struct weir__limit_cache *cache, struct weir__command *ret,
                               weir_error *err)
{
    if (n != 5)
        return command_wrong_count(ret->verb, err);
    int code = command_read_key_and_limit(args, cache, ret, err);
    if (code == 0)
        code = weir__read_whole(args[4], "the actual cost", 0, WEIR_COST_MAX, &ret->actual, err);
    ret->receipt = args[3];
    return code;
}

static int command_read_lease(const struct weir__span *args, size_t n,
                              struct weir__limit_cache *cache, struct weir__command *ret,
                              weir_error *err)
{
    if (n != 4)
        return command_wrong_count(ret->verb, err);
    int code = command_read_key_and_limit(args, cache, ret, err);
    return code ? code : command_read_lease_id(args[3], &ret->lease, err);
}

/* Through limit text, so that the cache and the bounds are those of every limit. */
static int command_read_throttle(const struct weir__span *args, size_t n,
                                 struct weir__limit_cache *cache, struct weir__command *ret,
                                 weir_error *err)
{
    int64_t burst = 0, count = 0, seconds = 0;
    if (n != 5 && n != 6)
        return command_wrong_count(ret->verb, err);
    int code = command_read_key(args[1], &ret->asks[0].key, err);
    if (code == 0)
        code = weir__read_whole(args[2], "max_burst", 0, WEIR_COST_MAX - 1, &burst, err);
    if (code == 0)
        code = weir__read_whole(args[3], "count", 1, WEIR_COST_MAX, &count, err);
    if (code == 0)
        code = weir__read_whole(args[4], "period", 1, WEIR_DURATION_MAX / 1000000, &seconds, err);
    if (code == 0 && n == 6)
        code = weir__read_whole(args[5], "quantity", 0, WEIR_COST_MAX, &ret->asks[0].cost, err);
    if (code)
        return code;
    char text[128];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_text(&buffer, "token-bucket ");
    weir__put_int(&buffer, count);
    weir__put_text(&buffer, "/");
    weir__put_int(&buffer, seconds);
    weir__put_text(&buffer, "s burst ");
    weir__put_int(&buffer, burst + 1);
    return command_read_limit(cache, (struct weir__span){text, buffer.len}, &ret->asks[0].limit,
                              err);
}

int weir__command_read(enum weir__verb verb, const struct weir__span *args, size_t n,
                       struct weir__limit_cache *cache, struct weir__command *ret, weir_error *err)
{
    ret->verb = verb;
    ret->count = 1;
    ret->wait_us = WEIR_WAIT_DEFAULT;
    ret->detail = false;
    ret->tells_granted = false;
    ret->acquires = verb == WEIR__VERB_ACQUIRE;
    ret->asks[0] = (struct weir__command_ask){.cost = 1}; /* RESET has no limit */
    ret->receipt = (struct weir__span){NULL, 0};
    ret->actual = 0;
    ret->lease = 0;
    switch (verb) {
    case WEIR__VERB_TAKE:
    case WEIR__VERB_PEEK:
    case WEIR__VERB_ACQUIRE:
        return command_read_take(args, n, cache, ret, err);
    case WEIR__VERB_TAKEALL:
        return command_read_take_all(args, n, cache, ret, err);
    case WEIR__VERB_SETTLE:
        return command_read_settle(args, n, cache, ret, err);
    case WEIR__VERB_RENEW:
    case WEIR__VERB_RELEASE:
        return command_read_lease(args, n, cache, ret, err);
    case WEIR__VERB_THROTTLE:
        return command_read_throttle(args, n, cache, ret, err);
    case WEIR__VERB_RESET:
    case WEIR__VERB_SHOW:
        return n == 2 ? command_read_key(args[1], &ret->asks[0].key, err)
                      : command_wrong_count(verb, err);
    case WEIR__VERB_CLOCK: /* these have no keys; each home reads them by itself */
    case WEIR__VERB_DECIDE:
        break;
    }
    return weir__fail(err, WEIR_EINVAL, 0, "'%s' cannot be used here", weir__verbs[verb].name);
}
