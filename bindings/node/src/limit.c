/* Limits, and the HTTP fields that tell of decisions under them. */
#include "addon.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void limit_unref(struct limit *limit)
{
    assert(limit->refs > 0);
    if (--limit->refs)
        return;
    weir_limit_free(limit->limit);
    free(limit);
}

static void limit_finalize(napi_env env, void *data, void *hint)
{
    (void)env;
    (void)hint;
    limit_unref(data);
}

/* parse(text): an external, or a code. */
static napi_value limit_parse(napi_env env, napi_callback_info info)
{
    struct addon *addon = addon_of(env);
    size_t argc = 1, len = 0;
    napi_value argv[1], ret = NULL;
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    char *text = value_text(env, addon, argv[0], &len);
    if (!text)
        return addon_code(env, addon->error.code);
    struct limit *limit = calloc(1, sizeof *limit);
    int code = limit ? weir_limit_parse_n(text, len, &limit->limit, &addon->error)
                     : addon_fail(addon, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM));
    free(text);
    if (code) {
        free(limit);
        return addon_code(env, code);
    }
    limit->refs = 1;
    if (napi_create_external(env, limit, limit_finalize, NULL, &ret) != napi_ok)
        limit_unref(limit);
    return ret;
}

static void limit_set(napi_env env, napi_value object, const char *name, int64_t number)
{
    napi_value value = NULL;
    napi_create_int64(env, number, &value);
    napi_set_named_property(env, object, name, value);
}

/* tell(limit): [text, {kind, amount, periodUs, burst, cost} …] */
static napi_value limit_tell(napi_env env, napi_callback_info info)
{
    size_t argc = 1;
    napi_value argv[1], ret = NULL, value = NULL;
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    const struct limit *limit = value_limit(env, argv[0]);
    if (!limit)
        return NULL;
    napi_create_array(env, &ret);
    napi_create_string_utf8(env, weir_limit_text(limit->limit), NAPI_AUTO_LENGTH, &value);
    napi_set_element(env, ret, 0, value);
    for (uint32_t i = 0; i < weir_limit_count(limit->limit); i++) {
        napi_value row = NULL;
        napi_create_object(env, &row);
        napi_create_string_utf8(env, weir_limit_kind(limit->limit, i), NAPI_AUTO_LENGTH, &value);
        napi_set_named_property(env, row, "kind", value);
        limit_set(env, row, "amount", weir_limit_amount(limit->limit, i));
        limit_set(env, row, "periodUs", weir_limit_period_us(limit->limit, i));
        limit_set(env, row, "burst", weir_limit_burst(limit->limit, i));
        limit_set(env, row, "cost", weir_limit_cost(limit->limit, i));
        napi_set_element(env, ret, i + 1, row);
    }
    return ret;
}

/* ---- fields ---- */

struct telling {
    weir_request requests[WEIR_LIMITS_MAX];
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    char *names[WEIR_LIMITS_MAX]; /* NULL: the algorithm's word */
    uint32_t n;
    size_t count;
    char text[WEIR_FIELDS_SIZE];
};

/* The limits of the requests; their rows stand behind the folded one in `out`. */
static int telling_read_limits(napi_env env, struct addon *addon, napi_value limits,
                               struct telling *ret)
{
    napi_get_array_length(env, limits, &ret->n);
    if (ret->n == 0 || ret->n > WEIR_LIMITS_MAX)
        return addon_fail(addon, WEIR_EINVAL, "expected 1 to 16 requests");
    for (uint32_t i = 0; i < ret->n; i++) {
        napi_value value = NULL;
        napi_get_element(env, limits, i, &value);
        const struct limit *limit = value_limit(env, value);
        if (!limit || ret->count + weir_limit_count(limit->limit) > WEIR_LIMITS_MAX)
            return addon_fail(addon, WEIR_EINVAL, "expected 1 to 16 limits");
        ret->requests[i].limit = limit->limit;
        ret->requests[i].detail = ret->rows + ret->count;
        ret->count += weir_limit_count(limit->limit);
    }
    for (size_t i = 0; i < ret->count; i++)
        row_read(addon->out + (i + 1) * ROW_SIZE, &ret->rows[i]);
    row_read(addon->out, &ret->folded);
    return 0;
}

static int telling_read_names(napi_env env, struct addon *addon, napi_value names,
                              struct telling *ret)
{
    bool is_array = false;
    napi_is_array(env, names, &is_array);
    for (uint32_t i = 0; is_array && i < ret->count; i++) {
        napi_value value = NULL;
        napi_valuetype type = napi_undefined;
        size_t len;
        napi_get_element(env, names, i, &value);
        napi_typeof(env, value, &type);
        if (type == napi_undefined || type == napi_null)
            continue;
        ret->names[i] = value_text(env, addon, value, &len);
        if (!ret->names[i])
            return addon->error.code;
    }
    return 0;
}

/* fields(style, limits, names): of the rows in `out`, as text; or a code. */
static napi_value limit_fields(napi_env env, napi_callback_info info)
{
    struct addon *addon = addon_of(env);
    struct telling *telling = calloc(1, sizeof *telling);
    size_t argc = 3, len = 0;
    napi_value argv[3], ret = NULL;
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    char *style = telling ? value_text(env, addon, argv[0], &len) : NULL;
    int code = telling ? 0 : addon_fail(addon, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM));
    if (code == 0)
        code = style ? telling_read_limits(env, addon, argv[1], telling) : addon->error.code;
    if (code == 0)
        code = telling_read_names(env, addon, argv[2], telling);
    if (code == 0)
        code =
            weir_fields(style, telling->requests, telling->n, (const char *const *)telling->names,
                        &telling->folded, telling->text, sizeof telling->text, &addon->error);
    if (code == 0)
        napi_create_string_latin1(env, telling->text, NAPI_AUTO_LENGTH, &ret);
    for (size_t i = 0; telling && i < WEIR_LIMITS_MAX; i++)
        free(telling->names[i]);
    free(telling);
    free(style);
    return code ? addon_code(env, code) : ret;
}

void limit_init(napi_env env, napi_value exports)
{
    addon_function(env, exports, "parse", limit_parse, NULL);
    addon_function(env, exports, "tell", limit_tell, NULL);
    addon_function(env, exports, "fields", limit_fields, NULL);
}
