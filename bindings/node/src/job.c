/*
 * A job: a verb with its requests, copied, so that it can run later and elsewhere.
 *
 *     run(store, verb, keys, limits, numbers, text)            now: undefined, rows, or a code
 *     submit(store, verb, keys, limits, numbers, text, callback)   in a thread of the pool
 *
 * keys and limits are arrays of the same length; numbers is a Float64Array with four of each
 * request (cost, wait in us, least, acquire), and of settle, renew and release the cost or lease.
 */
#include "addon.h"

#include "limit/receipt.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum number { NUMBER_COST, NUMBER_WAIT, NUMBER_LEAST, NUMBER_ACQUIRE, NUMBERS };

/* ---- reading ---- */

static bool job_has_limits(enum verb verb)
{
    return verb != VERB_RESET && verb != VERB_CHECK && verb != VERB_OPEN;
}

static bool job_allocate(struct job *job, uint32_t n)
{
    job->n = n;
    job->requests = calloc(n ? n : 1, sizeof *job->requests);
    job->limits = calloc(n ? n : 1, sizeof *job->limits);
    job->folded = calloc(n ? n : 1, sizeof *job->folded);
    return job->requests && job->limits && job->folded;
}

static int job_read_limits(napi_env env, struct addon *addon, napi_value limits, struct job *job)
{
    for (uint32_t i = 0; job_has_limits(job->verb) && i < job->n; i++) {
        napi_value value = NULL;
        napi_get_element(env, limits, i, &value);
        struct limit *limit = value_limit(env, value);
        if (!limit)
            return addon_fail(addon, WEIR_EINVAL, "invalid limit");
        job->limits[i] = limit;
        limit->refs++;
        job->requests[i].limit = limit->limit;
        job->row_count += weir_limit_count(limit->limit);
    }
    return 0;
}

/* Keys lie one after the other in one block, which grows; requests point into it at the end. */
static int job_read_keys(napi_env env, struct addon *addon, napi_value keys, struct job *job)
{
    size_t used = 0, room = 0;
    for (uint32_t i = 0; i < job->n; i++) {
        napi_value value = NULL;
        struct key key;
        napi_get_element(env, keys, i, &value);
        if (!value_key(env, addon, value, &key))
            return addon->error.code;
        job->requests[i].key.len = key.len;
        if (key.len <= WEIR_KEY_MAX) { /* otherwise the library refuses it */
            if (used + key.len + 1 > room) {
                room = 2 * (used + key.len + 1);
                char *grown = realloc(job->keys, room);
                if (!grown) {
                    value_key_free(&key);
                    return addon_fail(addon, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM));
                }
                job->keys = grown;
            }
            memcpy(job->keys + used, key.data, key.len);
            used += key.len;
        }
        value_key_free(&key);
    }
    const char *at = job->keys;
    for (size_t i = 0; i < job->n; i++) {
        weir_key *key = &job->requests[i].key;
        bool kept = key->len <= WEIR_KEY_MAX;
        key->data = kept && at ? at : "";
        at += kept && at ? key->len : 0;
    }
    return 0;
}

static bool job_whole(double number, double least, double most, int64_t *ret)
{
    if (!(number >= least && number <= most) || number != trunc(number))
        return false;
    *ret = (int64_t)number;
    return true;
}

static int job_read_numbers(napi_env env, struct addon *addon, napi_value array, struct job *job)
{
    double *numbers = NULL;
    size_t len = 0;
    napi_typedarray_type type = napi_int8_array;
    if (napi_get_typedarray_info(env, array, &type, &len, (void **)&numbers, NULL, NULL) ||
        type != napi_float64_array || len < (job->n ? job->n : 1) * NUMBERS)
        return addon_fail(addon, WEIR_EINVAL, "invalid numbers");
    if (!job_whole(numbers[0], 0, 9007199254740992.0, &job->number))
        return addon_fail(addon, WEIR_EINVAL, "invalid number");
    for (size_t i = 0; i < job->n; i++) {
        weir_request *request = &job->requests[i];
        const double *of = numbers + i * NUMBERS;
        int64_t cost = 0;
        if (!job_whole(of[NUMBER_COST], 0, 9007199254740992.0, &cost) ||
            !job_whole(of[NUMBER_LEAST], 0, 9007199254740992.0, &request->least))
            return addon_fail(addon, WEIR_EINVAL, "invalid cost");
        request->cost = cost == 0 ? WEIR_COST_NONE : cost;
        if (of[NUMBER_WAIT] == INFINITY)
            request->wait_us = WEIR_WAIT_ANY;
        else if (of[NUMBER_WAIT] < 0)
            request->wait_us = WEIR_WAIT_DEFAULT;
        else if (!job_whole(of[NUMBER_WAIT], 0, 9007199254740992.0, &request->wait_us))
            return addon_fail(addon, WEIR_EINVAL, "invalid wait");
        request->acquire = of[NUMBER_ACQUIRE] != 0;
    }
    return 0;
}

static int job_read_receipt(napi_env env, struct addon *addon, napi_value value, struct job *job)
{
    size_t len = 0;
    char *text = value_text(env, addon, value, &len);
    if (!text)
        return addon->error.code;
    bool fits = len < sizeof job->receipt;
    if (fits)
        memcpy(job->receipt, text, len + 1);
    free(text);
    return fits ? 0 : addon_fail(addon, WEIR_ERECEIPT, "the receipt is too long");
}

/* Rows of detail are wanted for takes and peeks alone. */
static bool job_place_rows(struct job *job)
{
    if ((job->verb != VERB_TAKE && job->verb != VERB_PEEK) || job->row_count > WEIR_LIMITS_MAX)
        return true; /* the library refuses so many limits */
    job->rows = calloc(job->row_count ? job->row_count : 1, sizeof *job->rows);
    weir_decision *row = job->rows;
    for (size_t i = 0; job->rows && i < job->n; i++) {
        job->requests[i].detail = row;
        row += weir_limit_count(job->requests[i].limit);
    }
    return job->rows;
}

static int job_fill(napi_env env, struct addon *addon, const napi_value *argv, struct job *job)
{
    uint32_t n = 0;
    napi_get_array_length(env, argv[2], &n);
    if (n > (job->verb == VERB_MANY ? MANY_MAX : WEIR_LIMITS_MAX))
        return addon_fail(addon, WEIR_EINVAL,
                          job->verb == VERB_MANY ? "too many requests: expected at most 65536"
                                                 : "too many requests: expected at most 16");
    if (!job_allocate(job, n))
        return addon_fail(addon, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM));
    int code = job_read_limits(env, addon, argv[3], job);
    if (code == 0)
        code = job_read_keys(env, addon, argv[2], job);
    if (code == 0)
        code = job_read_numbers(env, addon, argv[4], job);
    if (code == 0 && job->verb == VERB_SETTLE)
        code = job_read_receipt(env, addon, argv[5], job);
    if (code == 0 && !job_place_rows(job))
        code = addon_fail(addon, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM));
    return code;
}

/* A job of these arguments; NULL with addon->error. */
static struct job *job_make(napi_env env, struct store *store, const napi_value *argv)
{
    uint32_t verb = VERB_OPEN + 1;
    napi_get_value_uint32(env, argv[1], &verb);
    assert(verb <= VERB_OPEN);
    struct job *job = calloc(1, sizeof *job);
    if (!job) {
        addon_fail(store->addon, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM));
        return NULL;
    }
    job->verb = (enum verb)verb;
    job->store = store;
    store->refs++;
    if (job_fill(env, store->addon, argv, job)) {
        job_free(env, job);
        return NULL;
    }
    return job;
}

void job_free(napi_env env, struct job *job)
{
    for (size_t i = 0; job->limits && i < job->n; i++) {
        if (job->limits[i])
            limit_unref(job->limits[i]);
    }
    if (job->callback)
        napi_delete_reference(env, job->callback);
    store_unref(job->store);
    free(job->requests);
    free(job->limits);
    free(job->folded);
    free(job->rows);
    free(job->keys);
    free(job);
}

/* ---- running: no Node-API, any thread ---- */

/* The real cost. What a zone counted that was replaced is lost: nothing of it is given back in the
 * new one, where others are charged. */
static int64_t job_settle_cost(const struct job *job)
{
    struct weir__correction charge;
    int64_t since_us = job->store->since_us;
    bool lost = since_us > 0 && weir__receipt_read(job->receipt, &charge) &&
                charge.charged_at_us < since_us;
    return lost && job->number < charge.charged ? charge.charged : job->number;
}

void job_run(struct job *job, weir_store *store)
{
    const weir_request *first = job->requests;
    const weir_key key = job->n ? first->key : (weir_key){NULL, 0};
    job->requests->error = &job->error;
    switch (job->verb) {
    case VERB_TAKE:
        job->code = weir_take_all(store, job->requests, job->n, job->folded);
        break;
    case VERB_PEEK:
        job->code = weir_peek_all(store, job->requests, job->n, job->folded);
        break;
    case VERB_MANY:
        job->code = weir_take_many(store, job->requests, job->n, job->folded);
        break;
    case VERB_SETTLE:
        job->code =
            weir_settle(store, key, first->limit, job->receipt, job_settle_cost(job), &job->error);
        break;
    case VERB_RESET:
        job->code = weir_reset_key(store, key, &job->error);
        break;
    case VERB_RENEW:
        job->code = weir_renew_lease(store, key, first->limit, (uint64_t)job->number, &job->error);
        break;
    case VERB_RELEASE:
        job->code =
            weir_release_lease(store, key, first->limit, (uint64_t)job->number, &job->error);
        break;
    case VERB_CHECK:
        job->code = weir_store_check(store, &job->error);
        break;
    case VERB_OPEN:
        job->code = 0;
        break;
    }
    if (job->verb == VERB_MANY && job->n > 0)
        job->code = 0; /* each decision has its own */
    if (job->code && !job->error.code) {
        job->error.code = job->code;
        strncpy(job->error.message, weir_strerror(job->code), sizeof job->error.message - 1);
    }
}

/* ---- answers ---- */

/* The decisions as a Float64Array of their own; NULL: this verb has none. */
static napi_value job_rows(napi_env env, const struct job *job)
{
    const bool many = job->verb == VERB_MANY;
    const size_t folded = many ? job->n : 1, rows = job->rows ? job->row_count : 0;
    napi_value buffer = NULL, ret = NULL;
    double *to = NULL;
    if (job->code || (!many && job->verb != VERB_TAKE && job->verb != VERB_PEEK))
        return NULL;
    const size_t numbers = (folded + rows) * ROW_SIZE;
    if (napi_create_arraybuffer(env, numbers * sizeof *to, (void **)&to, &buffer) ||
        napi_create_typedarray(env, napi_float64_array, numbers, buffer, 0, &ret))
        return NULL;
    for (size_t i = 0; i < folded; i++)
        row_write(to + i * ROW_SIZE, &job->folded[i]);
    for (size_t i = 0; i < rows; i++)
        row_write(to + (folded + i) * ROW_SIZE, &job->rows[i]);
    return ret;
}

void job_tell(napi_env env, struct job *job)
{
    napi_value callback = NULL, receiver = NULL, argv[4], ignored = NULL;
    if (napi_get_reference_value(env, job->callback, &callback) || !callback ||
        napi_get_undefined(env, &receiver))
        return;
    argv[1] = job_rows(env, job);
    if (!argv[1])
        argv[1] = receiver;
    napi_create_int32(env, job->code, &argv[0]);
    napi_create_string_utf8(env, job->error.message, NAPI_AUTO_LENGTH, &argv[2]);
    napi_create_int32(env, job->error.column, &argv[3]);
    if (napi_call_function(env, receiver, callback, 4, argv, &ignored) != napi_ok)
        job->store->addon->stopped = true; /* callbacks do not throw: the environment ends */
}

static napi_value job_now(napi_env env, napi_callback_info info)
{
    struct addon *addon = addon_of(env);
    size_t argc = 6;
    napi_value argv[6], ret = NULL;
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    struct store *store = value_store(env, argv[0]);
    int code = store_usable(store);
    assert(code || !store->remote);
    struct job *job = code ? NULL : job_make(env, store, argv);
    if (!job)
        return addon_code(env, addon->error.code);
    job_run(job, store->store);
    code = job->code;
    if (code)
        addon->error = job->error;
    else
        ret = job_rows(env, job);
    job_free(env, job);
    return code ? addon_code(env, code) : ret;
}

static napi_value job_submit(napi_env env, napi_callback_info info)
{
    struct addon *addon = addon_of(env);
    size_t argc = 7;
    napi_value argv[7];
    napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
    struct store *store = value_store(env, argv[0]);
    int code = store_usable(store);
    assert(code || store->remote);
    struct job *job = code ? NULL : job_make(env, store, argv);
    if (!job)
        return addon_code(env, addon->error.code);
    if (napi_create_reference(env, argv[6], 1, &job->callback) != napi_ok) {
        job_free(env, job);
        return addon_code(env, addon_fail(addon, WEIR_EINVAL, "expected a callback"));
    }
    queue_add(env, store, job);
    return NULL;
}

void job_init(napi_env env, napi_value exports)
{
    addon_function(env, exports, "run", job_now, NULL);
    addon_function(env, exports, "submit", job_submit, NULL);
}
