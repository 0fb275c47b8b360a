/* What an environment has, from its beginning to its end: see addon.h. */
#include "addon.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct addon *addon_of(napi_env env)
{
    void *addon = NULL;
    napi_get_instance_data(env, &addon);
    assert(addon);
    return addon;
}

void addon_unref(struct addon *addon)
{
    assert(addon->refs > 0);
    if (--addon->refs == 0)
        free(addon);
}

napi_value addon_code(napi_env env, int code)
{
    napi_value ret = NULL;
    if (code)
        napi_create_int32(env, code, &ret);
    return ret;
}

int addon_fail(struct addon *addon, int code, const char *message)
{
    addon->error.code = code;
    addon->error.column = 0;
    snprintf(addon->error.message, sizeof addon->error.message, "%s", message);
    return code;
}

void addon_function(napi_env env, napi_value object, const char *name, napi_callback function,
                    void *data)
{
    napi_value value = NULL;
    if (napi_create_function(env, name, NAPI_AUTO_LENGTH, function, data, &value) == napi_ok)
        napi_set_named_property(env, object, name, value);
}

/* lastError(): [code, column, message] of the last call that returned a code. */
static napi_value addon_last_error(napi_env env, napi_callback_info info)
{
    const weir_error *error = &addon_of(env)->error;
    napi_value ret = NULL, value = NULL;
    (void)info;
    napi_create_array_with_length(env, 3, &ret);
    napi_create_int32(env, error->code, &value);
    napi_set_element(env, ret, 0, value);
    napi_create_int32(env, error->column, &value);
    napi_set_element(env, ret, 1, value);
    napi_create_string_utf8(env, error->message, NAPI_AUTO_LENGTH, &value);
    napi_set_element(env, ret, 2, value);
    return ret;
}

/* An empty call, to compare the others with. */
static napi_value addon_nothing(napi_env env, napi_callback_info info)
{
    (void)env;
    (void)info;
    return NULL;
}

/* receipt(row): of the decision in row 0 of `out`. */
static napi_value addon_receipt(napi_env env, napi_callback_info info)
{
    char text[WEIR_RECEIPT_SIZE];
    weir_decision decision;
    napi_value ret = NULL;
    (void)info;
    row_read(addon_of(env)->out, &decision);
    weir_receipt(&decision, text);
    napi_create_string_latin1(env, text, NAPI_AUTO_LENGTH, &ret);
    return ret;
}

static void addon_errors(napi_env env, napi_value exports)
{
    napi_value names = NULL, texts = NULL, value = NULL;
    napi_create_array(env, &names);
    napi_create_array(env, &texts);
    for (int i = 1; i <= weir_error_count(); i++) {
        napi_create_string_utf8(env, weir_errname(-i), NAPI_AUTO_LENGTH, &value);
        napi_set_element(env, names, (uint32_t)i - 1, value);
        napi_create_string_utf8(env, weir_strerror(-i), NAPI_AUTO_LENGTH, &value);
        napi_set_element(env, texts, (uint32_t)i - 1, value);
    }
    napi_set_named_property(env, exports, "errors", names);
    napi_set_named_property(env, exports, "texts", texts);
    napi_create_string_utf8(env, weir_version(), NAPI_AUTO_LENGTH, &value);
    napi_set_named_property(env, exports, "version", value);
}

/* The environment ends: what its loop still watches is closed. */
static void addon_clean(napi_async_cleanup_hook_handle handle, void *data)
{
    struct addon *addon = data;
    addon->hook = handle;
    addon->cleaning = true;
    watch_close_all(addon, NULL);
    if (addon->closing == 0)
        napi_remove_async_cleanup_hook(handle);
}

static void addon_finalize(napi_env env, void *data, void *hint)
{
    (void)env;
    (void)hint;
    addon_unref(data);
}

NAPI_MODULE_INIT()
{
    struct addon *addon = calloc(1, sizeof *addon);
    napi_value buffer = NULL, out = NULL;
    void *memory = NULL;
    const size_t numbers = (size_t)OUT_ROWS * ROW_SIZE;
    if (!addon || napi_create_arraybuffer(env, numbers * sizeof(double), &memory, &buffer) ||
        napi_create_typedarray(env, napi_float64_array, numbers, buffer, 0, &out) ||
        napi_create_reference(env, out, 1, &addon->out_ref)) {
        free(addon);
        napi_throw_error(env, NULL, "weir: out of memory");
        return NULL;
    }
    addon->out = memory;
    addon->refs = 1;
    if (napi_set_instance_data(env, addon, addon_finalize, NULL) ||
        napi_add_async_cleanup_hook(env, addon_clean, addon, &addon->hook)) {
        napi_throw_error(env, NULL, "weir: this environment ends");
        return NULL;
    }
    napi_set_named_property(env, exports, "out", out);
    addon_errors(env, exports);
    addon_function(env, exports, "lastError", addon_last_error, NULL);
    addon_function(env, exports, "nothing", addon_nothing, NULL);
    addon_function(env, exports, "receipt", addon_receipt, NULL);
    limit_init(env, exports);
    store_init(env, exports);
    job_init(env, exports);
    watch_init(env, exports);
    return exports;
}
