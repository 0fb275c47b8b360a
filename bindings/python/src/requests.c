/* The long forms: requests over several keys, batches, waits. */
#include "binding.h"

#include <stdio.h>
#include <unistd.h>

#define MANY_MOST 1000000

/* What was asked for: the requests, and the objects that their keys and limits belong to. */
struct group {
    weir_request *requests;
    PyObject *items;  /* a list of tuples: keys live in them */
    PyObject *limits; /* a tuple of limits, one per request */
    size_t n, rows;
};

static void group_clear(struct group *group)
{
    PyMem_Free(group->requests);
    Py_CLEAR(group->items);
    Py_CLEAR(group->limits);
    group->requests = NULL;
}

/* One (key, limit[, cost[, least]]). */
static int group_read(StoreObject *self, struct group *group, Py_ssize_t i)
{
    PyObject *item = PyList_GetItem(group->items, i);
    weir_request *request = &group->requests[i];
    const char *key;
    size_t len;
    int64_t cost = 1, least = 0;
    PyObject *words =
        item && !PyUnicode_Check(item) && !PyBytes_Check(item) ? PySequence_Tuple(item) : NULL;
    Py_ssize_t given = words ? PyTuple_Size(words) : 0;
    if (!words && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError))
        return -1; /* a generator's own */
    if (given < 2 || given > 4) {
        Py_XDECREF(words);
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError,
                     "request %zd must be (key, limit), (key, limit, cost) or (key, limit, cost, "
                     "least)",
                     i);
        return -1;
    }
    if (PyList_SetItem(group->items, i, words)) /* it keeps the key */
        return -1;
    LimitObject *limit = read_limit(self, PyTuple_GetItem(words, 1));
    if (!limit || PyTuple_SetItem(group->limits, i, (PyObject *)limit))
        return -1;
    if ((given > 2 && read_count(PyTuple_GetItem(words, 2), "cost", &cost)) ||
        (given > 3 && read_count(PyTuple_GetItem(words, 3), "least", &least)) ||
        read_key(PyTuple_GetItem(words, 0), &key, &len))
        return -1;
    weir_request_init(request, key, len, limit->limit);
    request->cost = cost == 0 ? WEIR_COST_NONE : cost;
    request->least = least;
    group->rows += weir_limit_count(limit->limit);
    return 0;
}

/* All of them; what converts them may run any code, so the list is ours. */
static int group_open(StoreObject *self, PyObject *requests, Py_ssize_t most, struct group *ret)
{
    *ret = (struct group){.items = PySequence_List(requests)};
    Py_ssize_t n = ret->items ? PyList_Size(ret->items) : -1;
    if (n >= 0 && (n == 0 || n > most)) {
        char message[80];
        snprintf(message, sizeof message, "%zd requests in one call: expected 1 to %zd", n, most);
        raise_code(WEIR_EINVAL, message);
        n = -1;
    }
    if (n > 0) {
        ret->n = (size_t)n;
        ret->requests = PyMem_Calloc(ret->n, sizeof *ret->requests);
        ret->limits = PyTuple_New(n);
        if (!ret->requests)
            PyErr_NoMemory();
    }
    bool failed = n < 0 || !ret->requests || !ret->limits;
    for (Py_ssize_t i = 0; i < n && !failed; i++)
        failed = group_read(self, ret, i) != 0;
    if (failed)
        group_clear(ret);
    return failed ? -1 : 0;
}

/* ---- all or nothing ---- */

/* A slot is held of each concurrent limit. */
static int group_acquire(struct group *group)
{
    bool any = false;
    for (size_t i = 0; i < group->n; i++) {
        const LimitObject *limit = (LimitObject *)PyTuple_GetItem(group->limits, (Py_ssize_t)i);
        group->requests[i].acquire = limit->lease_us > 0;
        any |= group->requests[i].acquire;
    }
    if (!any)
        raise_code(WEIR_EUNSUPPORTED, "none of the limits has leases: expected concurrent");
    return any ? 0 : -1;
}

static PyObject *group_decide(StoreObject *self, struct group *group, int64_t wait_us, bool peek)
{
    weir_decision d, rows[WEIR_LIMITS_MAX], *at = rows;
    weir_error err = {0};
    for (size_t i = 0; i < group->n; i++) {
        group->requests[i].wait_us = wait_us;
        group->requests[i].error = &err;
        if (group->rows <= WEIR_LIMITS_MAX) { /* otherwise it is refused */
            group->requests[i].detail = at;
            at += weir_limit_count(group->requests[i].limit);
        }
    }
    int code;
    struct handle *handle = store_begin(self);
    if (!handle)
        return NULL;
    do {
        PyThreadState *state = store_leave(self);
        err.code = 0;
        code = peek ? weir_peek_all(handle->store, group->requests, group->n, &d)
                    : weir_take_all(handle->store, group->requests, group->n, &d);
        store_return(state);
    } while (store_again(self, &handle, code));
    store_note(self, handle, code, &d);
    store_end(self, handle);
    if (code)
        return err.code ? raise_error(&err) : raise_code(code, NULL);
    PyObject *detail = decision_rows(rows, group->rows);
    if (!detail)
        return NULL;
    Py_INCREF(group->limits);
    return decision_make(&d, detail, group->limits);
}

static PyObject *decide_all(PyObject *op, PyObject *const *args, Py_ssize_t count, PyObject *names,
                            bool peek)
{
    static const char *const words[] = {"requests", "wait", "acquire"};
    PyObject *given[3];
    int64_t wait_us;
    struct group group;
    if (read_arguments(peek ? "peek_all" : "take_all", words, peek ? 2 : 3, 1, 1, args, count,
                       names, given))
        return NULL;
    int acquire = peek ? 0 : read_flag(given[2], 0);
    if (acquire < 0 || read_time(given[1], "wait", WEIR_WAIT_DEFAULT, &wait_us) ||
        group_open((StoreObject *)op, given[0], WEIR_LIMITS_MAX, &group))
        return NULL;
    PyObject *decision = acquire && group_acquire(&group)
                             ? NULL
                             : group_decide((StoreObject *)op, &group, wait_us, peek);
    group_clear(&group);
    return decision;
}

PyObject *store_take_all(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    return decide_all(self, args, count, names, false);
}

PyObject *store_peek_all(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    return decide_all(self, args, count, names, true);
}

static weir_request ask_request(const struct asked *asked)
{
    weir_request request;
    weir_request_init(&request, asked->key, asked->len, asked->limit->limit);
    request.cost = asked->cost == 0 ? WEIR_COST_NONE : asked->cost;
    return request;
}

/* What WEIR_COST_NONE and its like mean is not for callers. */
static int ask_check(const struct asked *asked)
{
    char message[80];
    if (asked->cost >= 0)
        return 0;
    snprintf(message, sizeof message, "invalid cost %lld: expected 0 to %lld",
             (long long)asked->cost, (long long)WEIR_COST_MAX);
    raise_code(WEIR_EINVAL, message);
    return -1;
}

PyObject *store_ask(StoreObject *self, const struct asked *asked, int64_t wait_us, int64_t least,
                    bool detail, bool acquire, bool peek)
{
    weir_decision d, rows[WEIR_LIMITS_MAX];
    weir_error err = {0};
    weir_request request = ask_request(asked);
    request.wait_us = wait_us;
    request.least = least;
    request.acquire = acquire;
    request.detail = detail ? rows : NULL;
    request.error = &err;
    int code;
    struct handle *handle = ask_check(asked) ? NULL : store_begin(self);
    if (!handle)
        return NULL;
    do {
        PyThreadState *state = store_leave(self);
        err.code = 0;
        code = peek ? weir_peek_all(handle->store, &request, 1, &d)
                    : weir_take_all(handle->store, &request, 1, &d);
        store_return(state);
    } while (store_again(self, &handle, code));
    store_note(self, handle, code, &d);
    store_end(self, handle);
    if (code)
        return err.code ? raise_error(&err) : raise_code(code, NULL);
    if (!detail)
        return decision_make(&d, NULL, NULL);
    PyObject *all = decision_rows(rows, weir_limit_count(asked->limit->limit));
    PyObject *limits = all ? PyTuple_Pack(1, asked->limit) : NULL;
    if (!limits) {
        Py_XDECREF(all);
        return NULL;
    }
    return decision_make(&d, all, limits);
}

/* ---- many ---- */

static PyObject *many_list(const weir_decision *decisions, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *one = decision_make(&decisions[i], NULL, NULL);
        if (!one || PyList_SetItem(list, (Py_ssize_t)i, one))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *many_decide(StoreObject *self, struct group *group)
{
    weir_decision *decisions = PyMem_Calloc(group->n, sizeof *decisions);
    if (!decisions)
        return PyErr_NoMemory();
    PyObject *list = NULL;
    struct handle *handle = store_begin(self);
    if (handle) {
        do {
            PyThreadState *state = store_leave(self);
            int code = weir_take_many(handle->store, group->requests, group->n, decisions);
            store_return(state);
            (void)code; /* each decision has its own */
        } while (store_again(self, &handle, decisions[0].code));
        store_note(self, handle, decisions[0].code, &decisions[0]);
        store_end(self, handle);
        list = many_list(decisions, group->n);
    }
    PyMem_Free(decisions);
    return list;
}

PyObject *store_take_many(PyObject *op, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static const char *const words[] = {"requests"};
    PyObject *given[1];
    struct group group;
    if (read_arguments("take_many", words, 1, 1, 1, args, count, names, given))
        return NULL;
    int empty = PyList_Check(given[0]) && PyList_Size(given[0]) == 0;
    if (empty)
        return PyList_New(0);
    if (group_open((StoreObject *)op, given[0], MANY_MOST, &group))
        return NULL;
    PyObject *list = many_decide((StoreObject *)op, &group);
    group_clear(&group);
    return list;
}

/* ---- waiting ---- */

/* What close() cancels waits by. A child of fork makes its own; its parent's is left alone. */
static weir_waiter *wait_waiter(StoreObject *self)
{
    weir_error err;
    if (self->waiter && self->waiter_owner == getpid())
        return self->waiter;
    self->waiter = NULL;
    if (weir_waiter_create(&self->waiter, &err)) {
        raise_error(&err);
        return NULL;
    }
    self->waiter_owner = getpid();
    return self->waiter;
}

/* Sleeps without the interpreter's lock. Where Python handles signals, in the main thread, one ends
 * the sleep; if its handler returns, the wait goes on. */
static int wait_sleep(StoreObject *self, struct handle **handle, const weir_request *request,
                      weir_wait_options *options, weir_decision *ret)
{
    int64_t begun = mono_us(), most = options->max_wait_us;
    options->interruptible = gettid() == getpid();
    for (;;) {
        PyThreadState *state = PyEval_SaveThread();
        int code = weir_wait_with((*handle)->store, request, options, ret);
        PyEval_RestoreThread(state);
        if (code != WEIR_EINTR && !store_again(self, handle, code))
            return code;
        if (PyErr_CheckSignals())
            return WEIR_EINTR;
        int64_t left = most - (mono_us() - begun);
        options->max_wait_us = most == WEIR_WAIT_ANY ? most : left > 0 ? left : 0;
    }
}

static PyObject *wait_ask(StoreObject *self, const struct asked *asked, int64_t max_wait_us,
                          bool acquire)
{
    weir_decision d;
    weir_error err = {0};
    weir_request request = ask_request(asked);
    request.acquire = acquire;
    request.error = &err;
    struct handle *handle = ask_check(asked) ? NULL : store_begin(self);
    if (!handle)
        return NULL;
    weir_wait_options options = {.max_wait_us = max_wait_us, .waiter = wait_waiter(self)};
    int code = options.waiter ? wait_sleep(self, &handle, &request, &options, &d) : WEIR_ESYSTEM;
    bool closed = self->closed;
    store_note(self, handle, code, &d);
    store_end(self, handle);
    if (PyErr_Occurred())
        return NULL;
    if (code == WEIR_ECANCELED && closed)
        return raise_code(code, "the store was closed during the wait, nothing is charged");
    if (code)
        return err.code ? raise_error(&err) : raise_code(code, NULL);
    return decision_make(&d, NULL, NULL);
}

PyObject *store_wait(PyObject *op, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static const char *const words[] = {"key", "limit", "cost", "max_wait", "acquire"};
    StoreObject *self = (StoreObject *)op;
    PyObject *given[5];
    int64_t max_wait_us;
    struct asked asked = {.cost = 1};
    if (read_arguments("wait", words, 5, 2, 4, args, count, names, given) ||
        read_time(given[3], "max_wait", WEIR_WAIT_ANY, &max_wait_us))
        return NULL;
    int acquire = read_flag(given[4], 0);
    if (acquire < 0 || read_key(given[0], &asked.key, &asked.len) ||
        (given[2] && read_int(given[2], "cost", &asked.cost)))
        return NULL;
    asked.limit = read_limit(self, given[1]);
    PyObject *decision = asked.limit ? wait_ask(self, &asked, max_wait_us, acquire) : NULL;
    Py_XDECREF(asked.limit);
    return decision;
}
