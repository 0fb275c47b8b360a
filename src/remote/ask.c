/*
 * What becomes of a question. Once bytes are sent it is never repeated, since it may have been
 * charged, except after replies by which a server says that it did nothing:
 *
 *     NOSCRIPT                 load the script on that server, ask again there; where that is
 *                              refused, send its text along
 *     unknown command          the module is gone: ask again by script
 *     MOVED                    ask the server named; the map is wrong
 *     ASK                      ask the server named, this once
 *     TRYAGAIN                 ask again in a moment: keys are on their way
 *     LOADING READONLY …       drop the connection; ask again if the keeper has a good one in time
 *
 * all within the deadline. Everything else is either a refusal (a code) or no decision at all
 * (WEIR_EUNREACHABLE): then the stand-in decides.
 */
#include "remote/ask.h"

#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRY_AGAIN_US 1000
#define LOADS_MAX 8 /* of a library that somebody else takes away again */

/* ---- where it goes ---- */

static uint16_t slot_of(const struct weir__ask *ask, weir_key key)
{
    char prefix[sizeof WEIR__TEST_PREFIX + sizeof ask->url->prefix];
    int len = snprintf(prefix, sizeof prefix, "%s%s", ask->time_us >= 0 ? WEIR__TEST_PREFIX : "",
                       ask->url->prefix);
    key = weir__key_bytes(key);
    return weir__slot_of(prefix, (size_t)len, key.data, key.len);
}

bool weir__ask_slot(struct weir__ask *ask)
{
    ask->slot = 0;
    if (ask->url->kind != WEIR__REDIS_CLUSTER)
        return true;
    ask->slot = slot_of(ask, ask->requests[0].key);
    for (size_t i = 1; i < ask->count; i++) {
        if (slot_of(ask, ask->requests[i].key) != ask->slot)
            return false;
    }
    return true;
}

/* The host of "MOVED 3999 host:port", which may be left out or hold colons of its own. */
static bool read_redirect(struct weir__fleet *fleet, const struct weir__ask *ask,
                          struct weir__redis_host *ret)
{
    const char *place = strrchr(ask->error, ' ');
    const char *colon = place ? strrchr(place, ':') : NULL;
    int port = colon ? atoi(colon + 1) : 0;
    if (!colon || port <= 0 || port > UINT16_MAX || colon - place > 254)
        return false;
    *ret = (struct weir__redis_host){.port = (uint16_t)port};
    memcpy(ret->name, place + 1, (size_t)(colon - place - 1));
    if (!ret->name[0]) {
        struct weir__redis_host here = weir__fleet_host(fleet, ask->node);
        memcpy(ret->name, here.name, sizeof ret->name);
    }
    return true;
}

static bool redirect(struct weir__fleet *fleet, struct weir__ask *ask, bool moved)
{
    struct weir__redis_host host;
    struct weir__node *node =
        read_redirect(fleet, ask, &host) ? weir__fleet_node(fleet, &host) : NULL;
    if (!node)
        return false;
    if (moved)
        weir__fleet_moved(fleet, ask->slot, node);
    ask->node = node;
    ask->asking = !moved;
    ask->load = WEIR__LOAD_NONE;
    ask->loads = 0;
    return true;
}

/* ---- what its answer says ---- */

static bool starts(const struct weir__ask *ask, const char *word)
{
    return !strncmp(ask->error, word, strlen(word));
}

static bool starts_with_one_of(const struct weir__ask *ask, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (starts(ask, words[i]))
            return true;
    }
    return false;
}

/* The server cannot decide anything now; another, or the same in a while, can. */
static bool unfit(const struct weir__ask *ask)
{
    static const char *const words[] = {"LOADING", "READONLY", "MASTERDOWN", "NOAUTH"};
    return starts_with_one_of(ask, words, WEIR__COUNT(words));
}

/* It cannot decide this now: no decision, but no reason to leave it either. */
static bool undecided(const struct weir__ask *ask)
{
    static const char *const words[] = {"OOM",  "MISCONF",     "NOREPLICAS",
                                        "BUSY", "CLUSTERDOWN", "MOVED",
                                        "ASK",  "TRYAGAIN",    "UNKILLABLE"};
    return starts_with_one_of(ask, words, WEIR__COUNT(words));
}

/* What a script for servers without memory does; tests' clocks have none. */
static bool gives_back(const struct weir__ask *ask)
{
    return !ask->by_module && ask->time_us < 0 &&
           (ask->verb == WEIR__VERB_RELEASE || ask->verb == WEIR__VERB_RESET);
}

static int refusal(const struct weir__ask *ask)
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
        if (starts(ask, table[i].text))
            return table[i].code;
    }
    return WEIR_ESYSTEM;
}

/* Drops the connection; 0: there is another one in time. */
static int reconnect(struct weir__ask *ask, const char *why)
{
    weir__link_break(&ask->call, why);
    ask->asking = false;
    ask->load = WEIR__LOAD_NONE;
    ask->loads = 0;
    return weir__link_wait(&ask->node->link, ask->call.deadline_us, true) ? 0 : WEIR_EUNREACHABLE;
}

/* The server does not know the script, or the function: it did nothing. One call of a link loads, the
 * others ask again meanwhile: a script is long. A library that cannot be loaded is the keeper's
 * business, who knows of versions. */
static int bring_script(struct weir__ask *ask)
{
    bool function = ask->url->engine == WEIR__ENGINE_FUNCTION && ask->time_us < 0;
    if (ask->loads > 0 && !function && ask->load == WEIR__LOAD_FIRST) {
        ask->load = WEIR__LOAD_WITH;
        return 0;
    }
    if (ask->load == WEIR__LOAD_WITH)
        return WEIR_ESYSTEM;
    if (ask->loads == LOADS_MAX)
        return reconnect(ask, ask->before[0] ? ask->before : ask->error);
    ask->load = WEIR__LOAD_NONE;
    if (atomic_exchange(&ask->node->link.loading, true)) {
        usleep(TRY_AGAIN_US);
        return 0;
    }
    ask->load = WEIR__LOAD_FIRST;
    ask->loads++;
    return 0;
}

/* A server that had the module has it no more: it did nothing. */
static int go_without_module(struct weir__ask *ask)
{
    if (ask->url->engine == WEIR__ENGINE_MODULE)
        return reconnect(ask, "engine=module, but the server has unloaded weir_redis.so");
    weir__link_forget_module(&ask->call);
    return 0;
}

/* After an error reply. 0: ask again; else the code it ends with. */
static int judge(struct weir__fleet *fleet, struct weir__ask *ask)
{
    if (!ask->by_module && (starts(ask, "NOSCRIPT") || starts(ask, "ERR Function not found")))
        return bring_script(ask);
    if (ask->by_module && starts(ask, "ERR unknown command"))
        return go_without_module(ask);
    if (starts(ask, "OOM") && gives_back(ask) && !ask->spare) {
        ask->spare = true;
        ask->load = WEIR__LOAD_NONE;
        return 0;
    }
    bool moved = starts(ask, "MOVED");
    if (moved || starts(ask, "ASK "))
        return redirect(fleet, ask, moved) ? 0 : WEIR_EUNREACHABLE;
    if (starts(ask, "TRYAGAIN")) {
        usleep(TRY_AGAIN_US);
        return 0;
    }
    if (unfit(ask))
        return reconnect(ask, ask->error);
    if (starts(ask, "WEIRREPLY")) { /* whose replies are these? */
        weir__link_break(&ask->call, ask->error);
        return WEIR_EUNREACHABLE;
    }
    if (starts(ask, "CLUSTERDOWN")) {
        fleet->stale = true;
        weir__fleet_wake(fleet);
    }
    return undecided(ask) || ask->spare ? WEIR_EUNREACHABLE : refusal(ask);
}

/* ---- asking ---- */

static void submit(struct weir__ask *ask)
{
    ask->sent = ask->node ? weir__link_submit(&ask->node->link, &ask->call) : WEIR__CALL_DOWN;
}

void weir__ask_begin(struct weir__fleet *fleet, struct weir__ask *ask)
{
    ask->call.write = weir__ask_write;
    ask->call.read = weir__ask_read;
    ask->asking = false;
    ask->load = WEIR__LOAD_NONE;
    ask->loads = 0;
    ask->node = weir__fleet_route(fleet, ask->slot);
    if (!ask->node && weir__fleet_wait(fleet, ask->call.deadline_us))
        ask->node = weir__fleet_route(fleet, ask->slot);
    submit(ask);
}

void weir__ask_flush(struct weir__ask *ask)
{
    if (ask->sent == WEIR__CALL_WAITING)
        weir__link_flush(&ask->node->link, ask->call.deadline_us);
}

int weir__ask_finish(struct weir__fleet *fleet, struct weir__ask *ask)
{
    int64_t deadline = ask->call.deadline_us;
    for (;;) {
        int code = WEIR_EUNREACHABLE;
        enum weir__call_status status =
            ask->sent == WEIR__CALL_WAITING ? weir__link_await(&ask->call) : ask->sent;
        if (ask->load == WEIR__LOAD_FIRST) /* others need not wait any longer */
            ask->node->link.loading = false;
        if (status == WEIR__CALL_DONE && !ask->failed)
            return 0;
        if (status == WEIR__CALL_DONE)
            code = judge(fleet, ask);
        else if (status == WEIR__CALL_DOWN && ask->node &&
                 weir__link_wait(&ask->node->link, deadline, false))
            code = 0;
        if (code == 0 && weir__mono_us() >= deadline)
            code = WEIR_EUNREACHABLE;
        if (code && ask->load == WEIR__LOAD_FIRST)
            ask->node->link.loading = false;
        if (code)
            return code;
        submit(ask);
        weir__ask_flush(ask);
    }
}
