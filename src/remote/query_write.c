/*
 * From queries to commands: WEIR.* where the server has the module, else EVALSHA or FCALL. There is
 * a lean script per algorithm for a take of one key under one limit, and a general one for the
 * rest.
 */
#include "remote/query.h"

#include "limit/limit.h"
#include "limit/receipt.h"
#include "remote/scripts.h"
#include "store/store.h"

#include <assert.h>
#include <string.h>

/* ---- words ---- */

static void query_put_word(struct weir__buffer *buffer, const char *word)
{
    weir__resp_put_bulk(buffer, word, strlen(word));
}

static void query_put_number(struct weir__buffer *buffer, int64_t number)
{
    weir__resp_put_bulk_integer(buffer, number);
}

/* Prefixes and key as one bulk string. */
static void query_put_key(const struct weir__redis_query *query, weir_key key,
                          struct weir__buffer *buffer)
{
    const char *test = query->time_us >= 0 ? WEIR__TEST_PREFIX : "";
    size_t test_len = strlen(test), prefix_len = strlen(query->url->prefix);
    weir__put_text(buffer, "$");
    weir__put_int(buffer, (int64_t)(test_len + prefix_len + key.len));
    weir__put_text(buffer, "\r\n");
    weir__put(buffer, test, test_len);
    weir__put(buffer, query->url->prefix, prefix_len);
    weir__put(buffer, key.data, key.len);
    weir__put_text(buffer, "\r\n");
}

static void query_put_header(struct weir__buffer *buffer, size_t words)
{
    weir__resp_put_header(buffer, WEIR__RESP_ARRAY, words, 2);
}

static void query_put_receipt(const struct weir__correction *correction,
                              struct weir__buffer *buffer)
{
    char receipt[WEIR_RECEIPT_SIZE];
    weir__receipt_write(correction->charged_at_us, correction->charged, correction->id, receipt);
    query_put_word(buffer, receipt);
}

/* The limits of request i as text. */
static void query_put_limits(const struct weir__redis_query *query, size_t i,
                             struct weir__buffer *buffer)
{
    const weir_limit *limit = query->requests[i].limit;
    char text[WEIR__LIMITS_TEXT_MAX];
    if (WEIR__LIKELY(!query->reduced))
        return query_put_word(buffer, weir_limit_text(limit));
    struct weir__buffer out = weir__buffer_over(text, sizeof text);
    for (size_t j = 0; j < limit->count; j++) {
        int64_t cost;
        struct weir__rule rule = weir__redis_query_rule(query, i, j, &cost);
        weir__put_text(&out, j ? ", " : "");
        weir__put_rule(&out, &rule);
        if (cost)
            weir__put_format(&out, " cost %lld", (long long)cost);
    }
    assert(!out.cut);
    weir__resp_put_bulk(buffer, text, out.len);
}

/* Whether a key is all that the verb takes. */
static bool query_needs_only_key(const struct weir__redis_query *query)
{
    return query->verb == WEIR__VERB_RESET || query->verb == WEIR__VERB_SHOW;
}

/* ---- the module ---- */

/* Over several keys an acquire is an option of takeall. */
static bool query_says_acquire(const struct weir__redis_query *query)
{
    return query->verb == WEIR__VERB_ACQUIRE && query->count > 1;
}

/* Whether the module is told the lease's id. Scripts are told one in any case. */
static bool query_names_lease(const struct weir__redis_query *query)
{
    assert(query->lease || !query->names);
    return query->names || (query->verb == WEIR__VERB_ACQUIRE && weir__redis_query_chosen(query));
}

static void query_put_options(const struct weir__redis_query *query, struct weir__buffer *buffer)
{
    if (weir__redis_query_grants(query)) {
        query_put_word(buffer, "LEAST");
        for (size_t i = 0; i < query->count; i++)
            query_put_number(buffer, query->requests[i].least);
    }
    if (query->wait_us != WEIR_WAIT_DEFAULT) {
        query_put_word(buffer, "WAIT");
        if (query->wait_us == WEIR_WAIT_ANY)
            query_put_word(buffer, "any");
        else
            query_put_number(buffer, query->wait_us);
    }
    if (query_says_acquire(query))
        query_put_word(buffer, "ACQUIRE");
    if (query_names_lease(query)) {
        query_put_word(buffer, "LEASE");
        query_put_number(buffer, (int64_t)query->lease);
    }
    if (weir__redis_query_wants_detail(query))
        query_put_word(buffer, "DETAIL");
}

static size_t query_option_words(const struct weir__redis_query *query)
{
    return (query->wait_us != WEIR_WAIT_DEFAULT ? 2 : 0) + weir__redis_query_wants_detail(query) +
           query_says_acquire(query) + (query_names_lease(query) ? 2 : 0) +
           (weir__redis_query_grants(query) ? 1 + query->count : 0);
}

static void query_put_take_all(const struct weir__redis_query *query, struct weir__buffer *buffer)
{
    query_put_header(buffer, 2 + 3 * query->count + query_option_words(query));
    query_put_word(buffer, weir__verbs[WEIR__VERB_TAKEALL].name);
    query_put_number(buffer, (int64_t)query->count);
    for (size_t i = 0; i < query->count; i++) {
        query_put_key(query, query->requests[i].key, buffer);
        query_put_limits(query, i, buffer);
        query_put_number(buffer, query->requests[i].cost);
    }
    query_put_options(query, buffer);
}

static void query_put_take(const struct weir__redis_query *query, const char *command,
                           struct weir__buffer *buffer)
{
    const weir_request *request = &query->requests[0];
    query_put_header(buffer, 3 + (request->cost != 1 ? 2 : 0) + query_option_words(query));
    query_put_word(buffer, command);
    query_put_key(query, request->key, buffer);
    query_put_limits(query, 0, buffer);
    if (request->cost != 1) {
        query_put_word(buffer, "COST");
        query_put_number(buffer, request->cost);
    }
    query_put_options(query, buffer);
}

static void query_put_module_command(const struct weir__redis_query *query,
                                     struct weir__buffer *buffer)
{
    const weir_request *request = &query->requests[0];
    if (weir__verb_decides(query->verb) && query->count > 1)
        return query_put_take_all(query, buffer);
    if (weir__verb_decides(query->verb))
        return query_put_take(query, weir__verbs[query->verb].name, buffer);
    query_put_header(buffer, query_needs_only_key(query)        ? 2
                             : query->verb == WEIR__VERB_SETTLE ? 5
                                                                : 4);
    query_put_word(buffer, weir__verbs[query->verb].name);
    query_put_key(query, request->key, buffer);
    if (query_needs_only_key(query))
        return;
    query_put_word(buffer, weir_limit_text(request->limit));
    if (query->verb == WEIR__VERB_SETTLE) {
        query_put_receipt(query->correction, buffer);
        query_put_number(buffer, query->correction->actual);
    } else {
        query_put_number(buffer, (int64_t)query->lease);
    }
}

/* ---- scripts ---- */

static bool query_is_lean(const struct weir__redis_query *query)
{
    return query->verb == WEIR__VERB_TAKE && query->limits == 1 && !query->requests[0].least &&
           !query->requests[0].limit->costs;
}

static void query_put_numbers(struct weir__buffer *buffer, const int64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        query_put_number(buffer, numbers[i]);
}

/* Whether a limit has a cost of its own: then each is eight numbers. */
static bool query_has_costs(const struct weir__redis_query *query)
{
    for (size_t i = 0; i < query->count; i++) {
        if (query->requests[i].limit && query->requests[i].limit->costs)
            return true;
    }
    return false;
}

static size_t query_general_words(const struct weir__redis_query *query)
{
    size_t per_key = 2 + weir__redis_query_grants(query);
    size_t per_limit = WEIR__RULE_NUMBERS + query_has_costs(query);
    return query_needs_only_key(query) ? 1 : 4 + per_key * query->count + per_limit * query->limits;
}

static void query_put_general_arguments(const struct weir__redis_query *query,
                                        struct weir__buffer *buffer)
{
    assert(weir__verbs[query->verb].homes & WEIR__VERB_LUA);
    query_put_number(buffer, query->verb);
    if (query_needs_only_key(query))
        return;
    bool grants = weir__redis_query_grants(query), owns = query_has_costs(query);
    query_put_number(buffer, weir__redis_query_wants_detail(query) + 2 * grants + 4 * owns);
    if (query->verb == WEIR__VERB_SETTLE)
        query_put_receipt(query->correction, buffer);
    else
        query_put_number(buffer, weir__script_wait(query->wait_us));
    query_put_number(buffer, (int64_t)query->lease);
    for (size_t i = 0; i < query->count; i++) {
        const weir_limit *limit = query->requests[i].limit;
        query_put_number(buffer, query->verb == WEIR__VERB_SETTLE ? query->correction->actual
                                                                  : query->requests[i].cost);
        if (grants)
            query_put_number(buffer, query->requests[i].least);
        query_put_number(buffer, (int64_t)limit->count);
        for (size_t j = 0; j < limit->count; j++) {
            int64_t numbers[WEIR__RULE_NUMBERS], cost;
            struct weir__rule rule = weir__redis_query_rule(query, i, j, &cost);
            weir__script_rule_numbers(&rule, numbers);
            query_put_numbers(buffer, numbers, WEIR__RULE_NUMBERS);
            if (owns)
                query_put_number(buffer, cost);
        }
    }
}

/* Loads the script first, where the server does not have it. Returns how many replies that gets. */
static unsigned query_put_load(const struct weir__redis_query *query,
                               const struct weir__script *script, bool function,
                               struct weir__buffer *buffer)
{
    bool anew = query->call.anew && !function; /* the keeper brings the library */
    if (query->load != WEIR__LOAD_FIRST && !anew)
        return 0;
    query_put_header(buffer, 3);
    query_put_word(buffer, function ? "FUNCTION" : "SCRIPT");
    query_put_word(buffer, "LOAD");
    query_put_word(buffer, (function ? weir__script_named(WEIR__SCRIPT_LIBRARY) : script)->text);
    return 1;
}

static void query_put_script_name(const struct weir__redis_query *query,
                                  const struct weir__script *script, bool function,
                                  struct weir__buffer *buffer)
{
    char name[64];
    struct weir__buffer text = weir__buffer_over(name, sizeof name);
    if (function) { /* weir_peek has a flag that lets it run on any server */
        weir__script_put_function(&text, script);
        query_put_word(buffer, "FCALL");
        bool reads = weir__verbs[query->verb].keys == WEIR__VERB_READS;
        query_put_word(buffer, reads ? "weir_peek" : name);
    } else if (query->load == WEIR__LOAD_WITH) {
        query_put_word(buffer, "EVAL");
        query_put_word(buffer, script->text);
    } else {
        query_put_word(buffer, "EVALSHA");
        query_put_word(buffer, script->sha1);
    }
}

static const struct weir__script *query_script_for(const struct weir__redis_query *query,
                                                   bool function, bool test)
{
    bool frees = query->verb == WEIR__VERB_RELEASE || query->verb == WEIR__VERB_RESET;
    if (query_is_lean(query))
        return weir__script_lean(query->requests[0].limit->rules[0].kind, test);
    return weir__script_named(frees && (function || query->spare) ? WEIR__SCRIPT_FREE
                              : test                              ? WEIR__SCRIPT_GENERAL "_test"
                                                                  : WEIR__SCRIPT_GENERAL);
}

static void query_put_asking(const struct weir__redis_query *query, struct weir__buffer *buffer)
{
    if (query->asking) {
        query_put_header(buffer, 1);
        query_put_word(buffer, "ASKING");
    }
}

static unsigned query_put_script_call(const struct weir__redis_query *query,
                                      struct weir__buffer *buffer)
{
    bool test = query->time_us >= 0, lean = query_is_lean(query);
    bool function = query->url->engine == WEIR__ENGINE_FUNCTION && !test;
    const struct weir__script *script = query_script_for(query, function, test);
    const weir_request *first = &query->requests[0];
    int64_t numbers[WEIR__LEAN_NUMBERS], own;
    size_t words = query_general_words(query);
    if (lean) {
        struct weir__rule rule = weir__redis_query_rule(query, 0, 0, &own);
        words = weir__script_lean_numbers(script, &rule, first->cost, query->wait_us, numbers);
    }
    unsigned replies = query_put_load(query, script, function, buffer);
    query_put_asking(query, buffer);
    query_put_header(buffer, 3 + query->count + words + test);
    query_put_script_name(query, script, function, buffer);
    query_put_number(buffer, (int64_t)query->count);
    for (size_t i = 0; i < query->count; i++)
        query_put_key(query, query->requests[i].key, buffer);
    if (lean)
        query_put_numbers(buffer, numbers, words);
    else
        query_put_general_arguments(query, buffer);
    if (test)
        query_put_number(buffer, query->time_us);
    return replies + 1 + query->asking;
}

/* ---- all of it ---- */

/* A sign of life: what there is to decide was decided here. */
static unsigned query_put_ping(struct weir__buffer *buffer)
{
    query_put_header(buffer, 1);
    query_put_word(buffer, "PING");
    return 1;
}

unsigned weir__redis_query_write(struct weir__call *call, const struct weir__server *server,
                                 struct weir__buffer *buffer)
{
    struct weir__redis_query *query = (struct weir__redis_query *)call;
    unsigned replies = 1;
    query->failed = false;
    query->before[0] = 0;
    query->by_module = server->module && (query->time_us < 0 || server->test_clock);
    query->names = query->by_module && !server->unnamed && query->verb == WEIR__VERB_ACQUIRE &&
                   !weir__redis_query_chosen(query);
    if (WEIR__UNLIKELY(query->never))
        return query_put_ping(buffer);
    if (!query->by_module)
        return query_put_script_call(query, buffer);
    if (query->time_us >= 0) {
        query_put_header(buffer, 2);
        query_put_word(buffer, weir__verbs[WEIR__VERB_CLOCK].name);
        query_put_number(buffer, query->time_us);
        replies++;
    }
    query_put_asking(query, buffer);
    query_put_module_command(query, buffer);
    return replies + query->asking;
}
