/* Values of JavaScript as those of C: keys, numbers, texts, and decisions as rows. */
#include "addon.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

/* What V8 writes for half of a surrogate pair: two such keys would become one. index.js finds out
 * whether the key itself holds this character. */
static bool value_is_replaced(const char *data, size_t len)
{
    const char *end = data + len, *at = data;
    while ((at = memchr(at, 0xef, (size_t)(end - at)))) {
        if (end - at >= 3 && (uint8_t)at[1] == 0xbf && (uint8_t)at[2] == 0xbd)
            return true;
        at++;
    }
    return false;
}

static bool value_key_long(napi_env env, struct addon *addon, napi_value value, struct key *ret)
{
    size_t len = 0;
    if (napi_get_value_string_utf8(env, value, NULL, 0, &len) != napi_ok)
        return addon_fail(addon, WEIR_EINVAL, "the key cannot be read") == 0;
    if (len > WEIR_KEY_MAX) { /* the library refuses it and says why; nothing is copied */
        ret->data = ret->room;
        ret->len = len;
        return true;
    }
    ret->heap = malloc(len + 1);
    if (!ret->heap)
        return addon_fail(addon, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM)) == 0;
    napi_get_value_string_utf8(env, value, ret->heap, len + 1, &ret->len);
    ret->data = ret->heap;
    return true;
}

static bool value_key_bytes(napi_env env, struct addon *addon, napi_value value, struct key *ret)
{
    bool is = false;
    napi_typedarray_type type = napi_int8_array;
    void *data = NULL;
    size_t len = 0;
    if (napi_is_typedarray(env, value, &is) != napi_ok || !is ||
        napi_get_typedarray_info(env, value, &type, &len, &data, NULL, NULL) != napi_ok ||
        type != napi_uint8_array)
        return addon_fail(addon, WEIR_EINVAL, "invalid key: expected a string or a Uint8Array") ==
               0;
    ret->data = data ? data : ret->room; /* detached: the library refuses its length of 0 */
    ret->len = data ? len : 0;
    return true;
}

bool value_key(napi_env env, struct addon *addon, napi_value value, struct key *ret)
{
    ret->heap = NULL;
    if (napi_get_value_string_utf8(env, value, ret->room, KEY_ROOM, &ret->len) != napi_ok)
        return value_key_bytes(env, addon, value, ret);
    ret->data = ret->room;
    if (ret->len >= KEY_ROOM - 4 && !value_key_long(env, addon, value, ret)) /* it may be cut */
        return false;
    if (ret->len <= WEIR_KEY_MAX && value_is_replaced(ret->data, ret->len)) {
        value_key_free(ret);
        return addon_fail(addon, WEIR_EINVAL,
                          "invalid key: it has half of a surrogate pair; "
                          "expected well-formed text, or a Uint8Array") == 0;
    }
    return true;
}

void value_key_free(struct key *key)
{
    free(key->heap);
    key->heap = NULL;
}

/* ---- numbers and texts ---- */

bool value_whole(napi_env env, struct addon *addon, napi_value value, double least, double most,
                 int64_t *ret)
{
    double number = NAN;
    if (napi_get_value_double(env, value, &number) != napi_ok ||
        !(number >= least && number <= most) || number != trunc(number))
        return addon_fail(addon, WEIR_EINVAL, "invalid number") == 0;
    *ret = (int64_t)number;
    return true;
}

char *value_text(napi_env env, struct addon *addon, napi_value value, size_t *ret_len)
{
    size_t len = 0;
    if (napi_get_value_string_utf8(env, value, NULL, 0, &len) != napi_ok) {
        addon_fail(addon, WEIR_EINVAL, "expected a string");
        return NULL;
    }
    char *text = malloc(len + 1);
    if (!text) {
        addon_fail(addon, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM));
        return NULL;
    }
    napi_get_value_string_utf8(env, value, text, len + 1, &len);
    if (strlen(text) != len) {
        free(text);
        addon_fail(addon, WEIR_EINVAL, "the text holds a NUL: expected text without");
        return NULL;
    }
    *ret_len = len;
    return text;
}

/* ---- handles: index.js gives no other externals ---- */

struct limit *value_limit(napi_env env, napi_value value)
{
    void *limit = NULL;
    return napi_get_value_external(env, value, &limit) == napi_ok ? limit : NULL;
}

struct store *value_store(napi_env env, napi_value value)
{
    void *store = NULL;
    return napi_get_value_external(env, value, &store) == napi_ok ? store : NULL;
}

/* ---- rows ---- */

static double row_receipt(const weir_decision *decision)
{
    double id = 0;
    for (size_t i = sizeof decision->receipt; i-- > 0;)
        id = id * 256 + decision->receipt[i];
    return decision->uneven ? -1 : id;
}

void row_write(double *row, const weir_decision *decision)
{
    row[ROW_ALLOWED] = decision->allowed;
    row[ROW_LIMIT] = (double)decision->limit;
    row[ROW_REMAINING] = (double)decision->remaining;
    row[ROW_RETRY] = (double)decision->retry_after_us;
    row[ROW_RESET] = (double)decision->reset_after_us;
    row[ROW_DELAY] = (double)decision->delay_us;
    row[ROW_GRANTED] = (double)decision->granted;
    row[ROW_CHARGED] = (double)decision->charged;
    row[ROW_TIME] = (double)decision->time_us;
    row[ROW_LEASE] = (double)decision->lease;
    row[ROW_BINDING] = decision->binding;
    row[ROW_DEGRADED] = decision->degraded;
    row[ROW_LOCAL] = decision->local;
    row[ROW_CLOSED] = decision->closed;
    row[ROW_FULL] = decision->full;
    row[ROW_RECEIPT] = row_receipt(decision);
    row[ROW_CODE] = decision->code;
    assert((uint64_t)row[ROW_LEASE] == decision->lease);
}

/* A number that the library would have written; anything else is 0. */
static int64_t row_number(double number)
{
    return number >= -1 && number <= 9007199254740992.0 ? (int64_t)number : 0;
}

void row_read(const double *row, weir_decision *ret)
{
    *ret = (weir_decision){
        .allowed = row[ROW_ALLOWED] != 0,
        .limit = row_number(row[ROW_LIMIT]),
        .remaining = row_number(row[ROW_REMAINING]),
        .retry_after_us = row_number(row[ROW_RETRY]),
        .reset_after_us = row_number(row[ROW_RESET]),
        .delay_us = row_number(row[ROW_DELAY]),
        .granted = row_number(row[ROW_GRANTED]),
        .charged = row_number(row[ROW_CHARGED]),
        .time_us = row_number(row[ROW_TIME]),
        .binding = (uint8_t)(row_number(row[ROW_BINDING]) & 0xff),
        .degraded = row[ROW_DEGRADED] != 0,
        .local = row[ROW_LOCAL] != 0,
        .closed = row[ROW_CLOSED] != 0,
        .full = row[ROW_FULL] != 0,
        .uneven = row[ROW_RECEIPT] < 0,
    };
    int64_t id = ret->uneven ? 0 : row_number(row[ROW_RECEIPT]);
    for (size_t i = 0; i < sizeof ret->receipt; i++)
        ret->receipt[i] = (uint8_t)(id >> 8 * i & 0xff);
}
