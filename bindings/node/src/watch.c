/*
 * Freed slots: a wake-up of the library, polled by the event loop.
 *
 *     watch(store, key, limit, callback)    an external, or a code; the callback is called after
 *                                           each release, when the wake-up is armed again
 *     unwatch(watch)
 *
 * A watch has two users: JavaScript (its external) and the loop, until its handle is closed. It is
 * freed when both have let go. What belongs to the environment or to the store is given back
 * earlier, by watch_close.
 */
#include "addon.h"

#include <assert.h>
#include <stdlib.h>

struct watch {
    struct watch *next, **at; /* in addon->watches; at is NULL when it is closed */
    struct addon *addon;
    struct store *store;
    weir_wakeup *wakeup;
    napi_env env;
    napi_ref callback;
    napi_async_context context;
    uv_poll_t poll;
    unsigned users;
};

static void watch_let_go(struct watch *watch)
{
    assert(watch->users > 0);
    if (--watch->users == 0)
        free(watch);
}

static void watch_finalize(napi_env env, void *data, void *hint)
{
    (void)env;
    (void)hint;
    watch_let_go(data);
}

/* ---- closing ---- */

static void watch_closed(uv_handle_t *handle)
{
    struct watch *watch = handle->data;
    struct addon *addon = watch->addon;
    assert(addon->closing > 0);
    if (--addon->closing == 0 && addon->cleaning)
        napi_remove_async_cleanup_hook(addon->hook);
    addon_unref(addon);
    watch_let_go(watch);
}

static void watch_close(struct watch *watch)
{
    if (!watch->at)
        return;
    *watch->at = watch->next;
    if (watch->next)
        watch->next->at = watch->at;
    watch->at = NULL;
    uv_poll_stop(&watch->poll); /* from here on the descriptor may be closed */
    weir_wakeup_close(watch->wakeup);
    napi_delete_reference(watch->env, watch->callback);
    napi_async_destroy(watch->env, watch->context);
    store_unref(watch->store);
    watch->addon->closing++;
    uv_close((uv_handle_t *)&watch->poll, watch_closed);
}

void watch_close_all(struct addon *addon, const struct store *store)
{
    struct watch *next;
    for (struct watch *watch = addon->watches; watch; watch = next) {
        next = watch->next;
        if (!store || watch->store == store)
            watch_close(watch);
    }
}

/* ---- a release ---- */

static void watch_ready(uv_poll_t *poll, int status, int events)
{
    struct watch *watch = poll->data;
    napi_env env = watch->env;
    napi_handle_scope scope = NULL;
    napi_value callback = NULL, global = NULL, ignored = NULL;
    (void)status; /* whatever it is: the callback asks the store */
    (void)events;
    int code = weir_wakeup_arm(watch->wakeup); /* before the store is asked again */
    if (status < 0 || code)
        uv_poll_stop(poll); /* it would be ready for ever; the timer of the wait is left */
    if (napi_open_handle_scope(env, &scope) != napi_ok)
        return;
    if (napi_get_reference_value(env, watch->callback, &callback) == napi_ok && callback &&
        napi_get_global(env, &global) == napi_ok &&
        napi_make_callback(env, watch->context, global, callback, 0, NULL, &ignored) != napi_ok) {
        napi_value error = NULL;
        if (napi_get_and_clear_last_exception(env, &error) == napi_ok)
            napi_fatal_exception(env, error);
    }
    napi_close_handle_scope(env, scope);
}

/* ---- opening ---- */

static int watch_begin(napi_env env, struct watch *watch, napi_value callback)
{
    napi_value name = NULL;
    uv_loop_t *loop = NULL;
    if (napi_create_string_latin1(env, "weir", NAPI_AUTO_LENGTH, &name) ||
        napi_get_uv_event_loop(env, &loop) ||
        napi_create_reference(env, callback, 1, &watch->callback))
        return WEIR_ESYSTEM;
    if (napi_async_init(env, NULL, name, &watch->context)) {
        napi_delete_reference(env, watch->callback);
        return WEIR_ESYSTEM;
    }
    if (uv_poll_init(loop, &watch->poll, weir_wakeup_fd(watch->wakeup))) {
        napi_delete_reference(env, watch->callback);
        napi_async_destroy(env, watch->context);
        return WEIR_ESYSTEM;
    }
    return 0;
}

static void watch_link(struct watch *watch)
{
    struct addon *addon = watch->addon;
    watch->poll.data = watch;
    watch->users = 2;
    watch->next = addon->watches;
    watch->at = &addon->watches;
    if (watch->next)
        watch->next->at = &watch->next;
    addon->watches = watch;
    addon->refs++;
    watch->store->refs++;
}

/* A watch of a usable store; NULL with addon->error. */
static struct watch *watch_make(napi_env env, struct store *store, const napi_value *argv)
{
    struct addon *addon = store->addon;
    struct key key;
    const struct limit *limit = value_limit(env, argv[2]);
    if (!value_key(env, addon, argv[1], &key))
        return NULL;
    struct watch *watch = calloc(1, sizeof *watch);
    int code = watch && limit ? weir_wakeup_open_n(store->store, key.data, key.len, limit->limit,
                                                   &watch->wakeup, &addon->error)
                              : addon_fail(addon, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM));
    value_key_free(&key);
    if (code == 0) {
        watch->addon = addon;
        watch->store = store;
        watch->env = env;
        code = watch_begin(env, watch, argv[3]);
        if (code) {
            addon_fail(addon, code, "the event loop cannot poll one more descriptor");
            weir_wakeup_close(watch->wakeup);
        }
    }
    if (code) {
        free(watch);
        return NULL;
    }
    watch_link(watch);
    return watch;
}

static napi_value watch_open(napi_env env, napi_callback_info info)
{
    size_t argc = 4;
    napi_value argv[4], ret = NULL;
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    struct store *store = value_store(env, argv[0]);
    struct addon *addon = store->addon;
    int code = store_usable(store);
    if (code == 0 && !store_is_open(store))
        code = addon_fail(addon, WEIR_EUNREACHABLE, "the store is not open yet");
    if (code)
        return addon_code(env, code);
    struct watch *watch = watch_make(env, store, argv);
    if (!watch)
        return addon_code(env, addon->error.code);
    if (napi_create_external(env, watch, watch_finalize, NULL, &ret) != napi_ok ||
        uv_poll_start(&watch->poll, UV_READABLE, watch_ready)) {
        watch->users -= !ret;
        watch_close(watch);
        return addon_code(env, addon_fail(addon, WEIR_ESYSTEM, "the event loop cannot poll"));
    }
    return ret;
}

static napi_value watch_unwatch(napi_env env, napi_callback_info info)
{
    size_t argc = 1;
    napi_value argv[1];
    void *watch = NULL;
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    if (napi_get_value_external(env, argv[0], &watch) == napi_ok && watch)
        watch_close(watch);
    return NULL;
}

void watch_init(napi_env env, napi_value exports)
{
    addon_function(env, exports, "watch", watch_open, NULL);
    addon_function(env, exports, "unwatch", watch_unwatch, NULL);
}
