/*
 * Questions to commands: WEIR.* where the server has the module, else EVALSHA or FCALL, lean
 * scripts for a take of one key under one limit and the general one for the rest.
 */
#include "remote/ask.h"

#include "limit/limit.h"
#include "limit/receipt.h"
#include "remote/scripts.h"
#include "store/store.h"

#include <assert.h>
#include <string.h>

/* ---- words ---- */

static void put_word(struct weir__buffer *buffer, const char *word)
{
    weir__resp_put_bulk(buffer, word, strlen(word));
}

static void put_number(struct weir__buffer *buffer, int64_t number)
{
    weir__resp_put_bulk_integer(buffer, number);
}

/* Prefixes and key as one bulk string. */
static void put_key(const struct weir__ask *ask, weir_key key, struct weir__buffer *buffer)
{
    const char *test = ask->time_us >= 0 ? WEIR__TEST_PREFIX : "";
    key = weir__key_bytes(key);
    size_t test_len = strlen(test), prefix_len = strlen(ask->url->prefix);
    weir__put_text(buffer, "$");
    weir__put_int(buffer, (int64_t)(test_len + prefix_len + key.len));
    weir__put_text(buffer, "\r\n");
    weir__put(buffer, test, test_len);
    weir__put(buffer, ask->url->prefix, prefix_len);
    weir__put(buffer, key.data, key.len);
    weir__put_text(buffer, "\r\n");
}

static void put_header(struct weir__buffer *buffer, size_t words)
{
    weir__resp_put_header(buffer, WEIR__RESP_ARRAY, words, 2);
}

static void put_receipt(const struct weir__correction *correction, struct weir__buffer *buffer)
{
    char receipt[WEIR_RECEIPT_SIZE];
    weir__receipt_write(correction->charged_at_us, correction->charged, correction->id, receipt);
    put_word(buffer, receipt);
}

/* Each limit's own row is wanted where there are several: the binding one is told by them. */
static bool wants_detail(const struct weir__ask *ask)
{
    return ask->limits > 1;
}

/* A key is all it needs. */
static bool is_bare(const struct weir__ask *ask)
{
    return ask->verb == WEIR__VERB_RESET || ask->verb == WEIR__VERB_SHOW;
}

/* ---- the module ---- */

static void put_wait_and_detail(const struct weir__ask *ask, struct weir__buffer *buffer)
{
    if (ask->wait_us != WEIR_WAIT_DEFAULT) {
        put_word(buffer, "WAIT");
        if (ask->wait_us == WEIR_WAIT_ANY)
            put_word(buffer, "any");
        else
            put_number(buffer, ask->wait_us);
    }
    if (wants_detail(ask))
        put_word(buffer, "DETAIL");
}

static size_t wait_and_detail_words(const struct weir__ask *ask)
{
    return (ask->wait_us != WEIR_WAIT_DEFAULT ? 2 : 0) + wants_detail(ask);
}

static void put_take_all(const struct weir__ask *ask, struct weir__buffer *buffer)
{
    put_header(buffer, 2 + 3 * ask->count + wait_and_detail_words(ask));
    put_word(buffer, weir__verbs[WEIR__VERB_TAKEALL].name);
    put_number(buffer, (int64_t)ask->count);
    for (size_t i = 0; i < ask->count; i++) {
        put_key(ask, ask->requests[i].key, buffer);
        put_word(buffer, weir_limit_text(ask->requests[i].limit));
        put_number(buffer, ask->requests[i].cost);
    }
    put_wait_and_detail(ask, buffer);
}

static void put_take(const struct weir__ask *ask, const char *command, struct weir__buffer *buffer)
{
    const weir_request *request = &ask->requests[0];
    put_header(buffer, 3 + (request->cost != 1 ? 2 : 0) + wait_and_detail_words(ask));
    put_word(buffer, command);
    put_key(ask, request->key, buffer);
    put_word(buffer, weir_limit_text(request->limit));
    if (request->cost != 1) {
        put_word(buffer, "COST");
        put_number(buffer, request->cost);
    }
    put_wait_and_detail(ask, buffer);
}

static void put_module_command(const struct weir__ask *ask, struct weir__buffer *buffer)
{
    const weir_request *request = &ask->requests[0];
    if (ask->verb == WEIR__VERB_TAKE && ask->count > 1)
        return put_take_all(ask, buffer);
    if (weir__verb_decides(ask->verb))
        return put_take(ask, weir__verbs[ask->verb].name, buffer);
    put_header(buffer, is_bare(ask) ? 2 : ask->verb == WEIR__VERB_SETTLE ? 5 : 4);
    put_word(buffer, weir__verbs[ask->verb].name);
    put_key(ask, request->key, buffer);
    if (is_bare(ask))
        return;
    put_word(buffer, weir_limit_text(request->limit));
    if (ask->verb == WEIR__VERB_SETTLE) {
        put_receipt(ask->correction, buffer);
        put_number(buffer, ask->correction->actual);
    } else {
        put_number(buffer, (int64_t)ask->lease);
    }
}

/* ---- scripts ---- */

static bool is_lean(const struct weir__ask *ask)
{
    return ask->verb == WEIR__VERB_TAKE && ask->limits == 1;
}

static int64_t script_wait(const struct weir__ask *ask)
{
    return ask->wait_us == WEIR_WAIT_ANY ? -2 : ask->wait_us;
}

static size_t count_words(const char *text)
{
    size_t words = *text != 0;
    for (; *text; text++)
        words += *text == ' ';
    return words;
}

/* One argument of a lean script, by its name. */
static int64_t lean_argument(const struct weir__ask *ask, const char *name)
{
    const struct weir__rule *rule = &ask->requests[0].limit->rules[0];
    switch (name[0]) {
    case 'c':
        return name[1] != 'o'   ? 0
               : name[2] == 's' ? ask->requests[0].cost
               : name[2] == 'u' ? rule->count
                                : (int64_t)rule->cold_millionths;
    case 'w':
        return script_wait(ask);
    case 'p':
        return rule->period_us;
    case 'b':
        return rule->burst;
    case 'e':
        return rule->extra;
    default:
        return rule->flags;
    }
}

static void put_lean_arguments(const struct weir__ask *ask, const char *names,
                               struct weir__buffer *buffer)
{
    for (;;) {
        put_number(buffer, lean_argument(ask, names));
        names = strchr(names, ' ');
        if (!names)
            return;
        names++;
    }
}

static size_t general_words(const struct weir__ask *ask)
{
    return is_bare(ask) ? 1 : 4 + 2 * ask->count + 7 * ask->limits;
}

static void put_rule(const struct weir__rule *rule, struct weir__buffer *buffer)
{
    const int64_t numbers[] = {rule->kind,  rule->count, rule->period_us,      rule->burst,
                               rule->extra, rule->flags, rule->cold_millionths};
    for (size_t i = 0; i < WEIR__COUNT(numbers); i++)
        put_number(buffer, numbers[i]);
}

static void put_general_arguments(const struct weir__ask *ask, struct weir__buffer *buffer)
{
    assert(weir__verbs[ask->verb].homes & WEIR__VERB_LUA);
    put_number(buffer, ask->verb);
    if (is_bare(ask))
        return;
    put_number(buffer, wants_detail(ask));
    if (ask->verb == WEIR__VERB_SETTLE)
        put_receipt(ask->correction, buffer);
    else
        put_number(buffer, script_wait(ask));
    put_number(buffer, (int64_t)ask->lease);
    for (size_t i = 0; i < ask->count; i++) {
        const weir_limit *limit = ask->requests[i].limit;
        put_number(buffer, ask->verb == WEIR__VERB_SETTLE ? ask->correction->actual
                                                          : ask->requests[i].cost);
        put_number(buffer, (int64_t)limit->count);
        for (size_t j = 0; j < limit->count; j++)
            put_rule(&limit->rules[j], buffer);
    }
}

/* The script on its own first, where the server does not have it; how many replies that gets. */
static unsigned put_load(const struct weir__ask *ask, const struct weir__script *script,
                         bool function, struct weir__buffer *buffer)
{
    if (ask->load != WEIR__LOAD_FIRST)
        return 0;
    put_header(buffer, 3);
    put_word(buffer, function ? "FUNCTION" : "SCRIPT");
    put_word(buffer, "LOAD");
    put_word(buffer, function ? weir__script_library() : weir__script_text(script));
    return 1;
}

static void put_script_name(const struct weir__ask *ask, const struct weir__script *script,
                            bool function, struct weir__buffer *buffer)
{
    char name[64];
    struct weir__buffer text = weir__buffer_over(name, sizeof name);
    if (function) { /* a flag lets a peek run anywhere */
        weir__script_put_function(&text, script);
        put_word(buffer, "FCALL");
        bool reads = weir__verbs[ask->verb].keys == WEIR__VERB_READS;
        put_word(buffer, reads ? "weir_peek" : name);
    } else if (ask->load == WEIR__LOAD_WITH) {
        put_word(buffer, "EVAL");
        put_word(buffer, weir__script_text(script));
    } else {
        put_word(buffer, "EVALSHA");
        put_word(buffer, weir__script_sha1(script));
    }
}

static const struct weir__script *script_for(const struct weir__ask *ask, bool function, bool test)
{
    bool frees = ask->verb == WEIR__VERB_RELEASE || ask->verb == WEIR__VERB_RESET;
    if (is_lean(ask))
        return weir__script_lean(ask->requests[0].limit->rules[0].kind, test);
    return frees && (function || ask->spare) ? weir__script_free() : weir__script_general(test);
}

static void put_asking(const struct weir__ask *ask, struct weir__buffer *buffer)
{
    if (ask->asking) {
        put_header(buffer, 1);
        put_word(buffer, "ASKING");
    }
}

static unsigned put_script_call(const struct weir__ask *ask, struct weir__buffer *buffer)
{
    bool test = ask->time_us >= 0, lean = is_lean(ask);
    bool function = ask->url->engine == WEIR__ENGINE_FUNCTION && !test;
    const struct weir__script *script = script_for(ask, function, test);
    const char *names = weir__script_arguments(script);
    unsigned replies = put_load(ask, script, function, buffer);
    put_asking(ask, buffer);
    put_header(buffer, 3 + ask->count + (lean ? count_words(names) : general_words(ask)) + test);
    put_script_name(ask, script, function, buffer);
    put_number(buffer, (int64_t)ask->count);
    for (size_t i = 0; i < ask->count; i++)
        put_key(ask, ask->requests[i].key, buffer);
    if (lean)
        put_lean_arguments(ask, names, buffer);
    else
        put_general_arguments(ask, buffer);
    if (test)
        put_number(buffer, ask->time_us);
    return replies + 1 + ask->asking;
}

/* ---- all of it ---- */

unsigned weir__ask_write(struct weir__call *call, const struct weir__server *server,
                         struct weir__buffer *buffer)
{
    struct weir__ask *ask = (struct weir__ask *)call;
    unsigned replies = 1;
    ask->failed = false;
    ask->before[0] = 0;
    ask->by_module = server->module && (ask->time_us < 0 || server->test_clock);
    if (!ask->by_module)
        return put_script_call(ask, buffer);
    if (ask->time_us >= 0) {
        put_header(buffer, 2);
        put_word(buffer, "WEIR.CLOCK");
        put_number(buffer, ask->time_us);
        replies++;
    }
    put_asking(ask, buffer);
    put_module_command(ask, buffer);
    return replies + ask->asking;
}
