/* Stores: opened, asked on the fast path, closed. */
#include "addon.h"

#include "store/store.h"
#include "wire/url.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void store_unref(struct store *store)
{
    assert(store->refs > 0);
    if (--store->refs)
        return;
    assert(store->jobs == 0 && store->batches == 0);
    weir_store_close(store->store);
    pthread_mutex_destroy(&store->opening);
    addon_unref(store->addon);
    free(store->url);
    free(store);
}

static void store_finalize(napi_env env, void *data, void *hint)
{
    (void)env;
    (void)hint;
    store_unref(data);
}

int store_usable(struct store *store)
{
    assert(store);
    return store->closed ? addon_fail(store->addon, WEIR_EINVAL, "the store is closed") : 0;
}

/* ---- take and peek, one key: no allocation, the answer in `out` ---- */

typedef int (*store_verb)(weir_store *, const void *, size_t, const weir_limit *, int64_t,
                          weir_decision *, weir_error *);

static inline napi_value store_ask(napi_env env, napi_callback_info info, store_verb verb)
{
    size_t argc = 3;
    napi_value argv[3];
    void *data = NULL, *limit = NULL;
    struct key key;
    double cost = -1;
    weir_decision decision;
    napi_get_cb_info(env, info, &argc, argv, NULL, &data);
    struct store *store = data;
    struct addon *addon = store->addon;
    if (store->closed)
        return addon_code(env, store_usable(store));
    if (!value_key(env, addon, argv[0], &key))
        return addon_code(env, addon->error.code);
    int code;
    if (napi_get_value_external(env, argv[1], &limit) != napi_ok)
        code = addon_fail(addon, WEIR_EINVAL, "invalid limit");
    else if (napi_get_value_double(env, argv[2], &cost) != napi_ok || !(cost >= 0) ||
             cost > (double)WEIR_COST_MAX || cost != (double)(int64_t)cost)
        code = addon_fail(addon, WEIR_EINVAL,
                          "invalid cost: expected a whole number from 0 to 1000000000000");
    else
        code = verb(store->store, key.data, key.len, ((struct limit *)limit)->limit, (int64_t)cost,
                    &decision, &addon->error);
    value_key_free(&key);
    if (code)
        return addon_code(env, code);
    row_write(addon->out, &decision);
    return NULL;
}

static napi_value store_take(napi_env env, napi_callback_info info)
{
    return store_ask(env, info, weir_take_n);
}

static napi_value store_peek(napi_env env, napi_callback_info info)
{
    return store_ask(env, info, weir_peek_n);
}

/* A function of this store's, which keeps it. */
static void store_function(napi_env env, struct store *store, napi_value object, const char *name,
                           napi_callback callback)
{
    napi_value function = NULL;
    if (napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, store, &function) != napi_ok)
        return;
    store->refs++;
    if (napi_add_finalizer(env, function, store, store_finalize, NULL, NULL) != napi_ok) {
        store->refs--;
        return;
    }
    napi_set_named_property(env, object, name, function);
}

/* ---- opening ---- */

static struct store *store_make(struct addon *addon, char *url)
{
    struct store *store = calloc(1, sizeof *store);
    if (!store) {
        free(url);
        addon_fail(addon, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM));
        return NULL;
    }
    store->refs = 1;
    store->addon = addon;
    addon->refs++;
    store->url = url;
    for (unsigned i = 0; i < LANES; i++)
        store->lanes[i].last = &store->lanes[i].first;
    store->remote = !strncmp(url, "redis", 5);
    pthread_mutex_init(&store->opening, NULL);
    return store;
}

/* A remote store is opened by its first job, but a mistake in its address is found at once. */
static int store_check_address(struct addon *addon, const char *url)
{
    struct weir__redis_url parsed;
    int code = weir__redis_url_parse(url, &parsed, &addon->error);
    explicit_bzero(&parsed, sizeof parsed); /* it has the password */
    return code == WEIR_EURL ? code : 0;
}

/* open(url): {handle, remote, take, peek}, or a code. */
static napi_value store_open(napi_env env, napi_callback_info info)
{
    struct addon *addon = addon_of(env);
    size_t argc = 1, len = 0;
    napi_value argv[1], ret = NULL, value = NULL;
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    char *url = value_text(env, addon, argv[0], &len);
    struct store *store = url ? store_make(addon, url) : NULL;
    if (!store)
        return addon_code(env, addon->error.code);
    int code = store->remote ? store_check_address(addon, url)
                             : weir_store_open(url, &store->store, &addon->error);
    if (code) {
        store_unref(store);
        return addon_code(env, code);
    }
    napi_create_object(env, &ret);
    if (napi_create_external(env, store, store_finalize, NULL, &value) != napi_ok) {
        store_unref(store);
        return NULL;
    }
    napi_set_named_property(env, ret, "handle", value);
    napi_get_boolean(env, store->remote, &value);
    napi_set_named_property(env, ret, "remote", value);
    if (!store->remote) {
        store_function(env, store, ret, "take", store_take);
        store_function(env, store, ret, "peek", store_peek);
    }
    return ret;
}

/* close(store, callback): a local one at once; the callback is called when a remote one is. */
static napi_value store_close(napi_env env, napi_callback_info info)
{
    size_t argc = 2;
    napi_value argv[2];
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    struct store *store = value_store(env, argv[0]);
    if (!store || store->closed)
        return NULL;
    store->closed = true;
    watch_close_all(store->addon, store);
    if (store->remote) {
        queue_close(env, store, argv[1]);
    } else {
        weir_store_close(store->store);
        store->store = NULL;
    }
    return NULL;
}

/* ---- looking ---- */

/* setTime(store, us): stops a local store's clock; -1 lets it go on. */
static napi_value store_set_time(napi_env env, napi_callback_info info)
{
    struct addon *addon = addon_of(env);
    size_t argc = 2;
    napi_value argv[2];
    int64_t time_us = 0;
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    struct store *store = value_store(env, argv[0]);
    int code = store_usable(store);
    if (code == 0 && !value_whole(env, addon, argv[1], -1, 9007199254740991.0, &time_us))
        code = addon->error.code;
    if (code == 0 && store->remote)
        code = addon_fail(addon, WEIR_EUNSUPPORTED, "a redis:// store has the server's clock");
    if (code == 0 && weir_store_set_time(store->store, time_us))
        code = addon_fail(addon, WEIR_EINVAL, "invalid time");
    return addon_code(env, code);
}

/* denyFull(store): from now on, takes of a local store that find no room are denied. */
static napi_value store_deny_full(napi_env env, napi_callback_info info)
{
    size_t argc = 1;
    napi_value argv[1];
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    struct store *store = value_store(env, argv[0]);
    int code = store_usable(store);
    if (code == 0 && !store->remote)
        weir__store_deny_full(store->store);
    return addon_code(env, code);
}

/* begins(store): it has taken the place of a zone that was replaced, now. */
static napi_value store_begins(napi_env env, napi_callback_info info)
{
    size_t argc = 1;
    napi_value argv[1];
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    struct store *store = value_store(env, argv[0]);
    int code = store_usable(store);
    assert(!store->remote);
    if (code == 0)
        store->since_us = weir__store_now(store->store);
    return addon_code(env, code);
}

static void store_numbers(napi_env env, napi_value object, const char *const *names,
                          const uint64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        napi_value value = NULL;
        napi_create_double(env, (double)numbers[i], &value);
        napi_set_named_property(env, object, names[i], value);
    }
}

/* info(store): how full a zone is, or a code. */
static napi_value store_info(napi_env env, napi_callback_info info)
{
    static const char *const names[] = {
        "size",    "keys",         "capacity",       "largeBytes",     "largeUsed",
        "limits",  "evictedFresh", "evictedUnused",  "evictedSoonest", "repairs",
        "refused", "limitsMax",    "evictedReceipts"};
    size_t argc = 1;
    napi_value argv[1], ret = NULL;
    weir_zone_info zone;
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    struct store *store = value_store(env, argv[0]);
    int code = store_usable(store);
    if (code == 0 && store->remote)
        code = addon_fail(store->addon, WEIR_EUNSUPPORTED, "a redis:// store is no zone");
    else if (code == 0 && (code = weir_store_info(store->store, &zone)))
        addon_fail(store->addon, code, weir_strerror(code));
    if (code)
        return addon_code(env, code);
    napi_create_object(env, &ret);
    store_numbers(env, ret, names, &zone.size, sizeof names / sizeof *names);
    return ret;
}

/* counts(store): how it has decided so far, or a code. */
static napi_value store_counts(napi_env env, napi_callback_info info)
{
    static const char *const names[] = {"allowed", "denied", "delayed", "failed", "degraded"};
    size_t argc = 1;
    napi_value argv[1], ret = NULL;
    weir_counts counts = {0};
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    struct store *store = value_store(env, argv[0]);
    int code = store_usable(store);
    if (code)
        return addon_code(env, code);
    if (store_is_open(store) && (code = weir_store_counts(store->store, &counts)))
        addon_fail(store->addon, code, weir_strerror(code));
    if (code)
        return addon_code(env, code);
    napi_create_object(env, &ret);
    store_numbers(env, ret, names, &counts.allowed, sizeof names / sizeof *names);
    return ret;
}

void store_init(napi_env env, napi_value exports)
{
    addon_function(env, exports, "open", store_open, NULL);
    addon_function(env, exports, "close", store_close, NULL);
    addon_function(env, exports, "setTime", store_set_time, NULL);
    addon_function(env, exports, "denyFull", store_deny_full, NULL);
    addon_function(env, exports, "begins", store_begins, NULL);
    addon_function(env, exports, "info", store_info, NULL);
    addon_function(env, exports, "counts", store_counts, NULL);
}
