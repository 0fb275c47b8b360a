/* What an error reply to a query means. What becomes of the query is its caller's: query.c, which
 * has links to servers, and carried.c, whose bytes the program carries. */
#include "remote/query.h"

#include <string.h>

bool weir__redis_query_error_is(const struct weir__redis_query *query, const char *word)
{
    return !strncmp(query->error, word, strlen(word));
}

static bool judge_error_is_one_of(const struct weir__redis_query *query, const char *const *words,
                                  size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (weir__redis_query_error_is(query, words[i]))
            return true;
    }
    return false;
}

/* The server cannot decide anything now. Another server can, or the same one later. */
static bool judge_server_is_unfit(const struct weir__redis_query *query)
{
    static const char *const words[] = {"LOADING", "READONLY", "MASTERDOWN", "NOAUTH"};
    return judge_error_is_one_of(query, words, WEIR__COUNT(words));
}

/* The server cannot decide this now. That is no reason to drop the connection. */
static bool judge_is_undecided(const struct weir__redis_query *query)
{
    static const char *const words[] = {"OOM",  "MISCONF",     "NOREPLICAS",
                                        "BUSY", "CLUSTERDOWN", "MOVED",
                                        "ASK",  "TRYAGAIN",    "UNKILLABLE"};
    return judge_error_is_one_of(query, words, WEIR__COUNT(words));
}

/* Whether it gives something back: for that there is a script which runs on a server without
 * memory (but not under the test clock). */
static bool judge_gives_back(const struct weir__redis_query *query)
{
    return !query->by_module && query->time_us < 0 &&
           (query->verb == WEIR__VERB_RELEASE || query->verb == WEIR__VERB_RESET);
}

/* The module cannot read a limit that this program has read, or an option that it wrote. */
static void judge_blame_module(struct weir__redis_query *query)
{
    char said[WEIR__ERROR_MAX];
    memcpy(said, query->error, sizeof said);
    struct weir__buffer buffer = weir__buffer_over(query->error, sizeof query->error);
    weir__put_format(&buffer,
                     "weir_redis.so does not know this %s, it is older than this program: "
                     "upgrade it first (%s)",
                     strncmp(said, "ERR limit", 9) ? "option" : "limit", said);
}

enum weir__redis_verdict weir__redis_query_judge(struct weir__redis_query *query)
{
    if (!query->by_module && (weir__redis_query_error_is(query, "NOSCRIPT") ||
                              weir__redis_query_error_is(query, "ERR Function not found")))
        return WEIR__VERDICT_NO_SCRIPT;
    if (query->by_module && weir__redis_query_error_is(query, "ERR unknown command"))
        return WEIR__VERDICT_NO_MODULE;
    if (query->names && weir__redis_query_error_is(query, "ERR expected ["))
        return WEIR__VERDICT_NO_LEASE;
    if (weir__redis_query_error_is(query, "OOM") && judge_gives_back(query) && !query->spare)
        return WEIR__VERDICT_NO_MEMORY;
    if (weir__redis_query_error_is(query, "MOVED"))
        return WEIR__VERDICT_MOVED;
    if (weir__redis_query_error_is(query, "ASK "))
        return WEIR__VERDICT_ASK;
    if (weir__redis_query_error_is(query, "TRYAGAIN"))
        return WEIR__VERDICT_TRY_AGAIN;
    if (judge_server_is_unfit(query))
        return WEIR__VERDICT_UNFIT;
    if (weir__redis_query_error_is(query, "WEIRREPLY"))
        return WEIR__VERDICT_BROKEN;
    if (query->by_module && (weir__redis_query_error_is(query, "ERR limit: ") ||
                             weir__redis_query_error_is(query, "ERR expected [")))
        judge_blame_module(query);
    return judge_is_undecided(query) || query->spare ? WEIR__VERDICT_UNDECIDED
                                                     : WEIR__VERDICT_REFUSED;
}

int weir__redis_query_refusal(const struct weir__redis_query *query)
{
    static const struct {
        const char *text;
        int code;
    } table[] = {
        {"WEIRSTATE", WEIR_EFOREIGN},
        {"CROSSSLOT", WEIR_ESLOTS},
        {"WEIRSHARED", WEIR_ESHARED},
        {"WEIRFULL", WEIR_EFULL},
    };
    for (size_t i = 0; i < WEIR__COUNT(table); i++) {
        if (weir__redis_query_error_is(query, table[i].text))
            return table[i].code;
    }
    return WEIR_ESYSTEM;
}
