/* weir.Store: opening and closing, and the verbs of one key. requests.c has those of several keys
 * and the waits, leases.c the leases. */
#include "binding.h"

#include "limit/receipt.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REOPEN_EVERY_US 1000000 /* where another zone cannot be opened */
#define REOPEN_WAIT_US 5000000  /* for who opens it; so long that one waits for other processes */
#define BACK_US 2000000         /* so long without the fallback: servers decide again */

PyTypeObject *store_type;

/* ---- calls and closing ---- */

static void handle_close(struct handle *handle, weir_waiter *waiter)
{
    if (!handle)
        return;
    assert(handle->calls == 0);
    PyThreadState *state = PyEval_SaveThread();
    weir_waiter_free(waiter);
    weir_store_close(handle->store);
    free(handle);
    PyEval_RestoreThread(state);
}

/* Closes what nobody uses any more. */
static void store_finish(StoreObject *self)
{
    struct handle *handle = self->handle;
    weir_waiter *waiter = self->waiter_owner == getpid() ? self->waiter : NULL;
    assert(self->calls == 0);
    self->handle = NULL;
    self->waiter = NULL;
    handle_close(handle, waiter);
}

struct handle *store_begin(StoreObject *self)
{
    if (UNLIKELY(self->closed)) {
        raise_code(WEIR_EINVAL, "the store is closed");
        return NULL;
    }
    assert(self->handle);
    self->calls++;
    self->handle->calls++;
    return self->handle;
}

void store_end(StoreObject *self, struct handle *handle)
{
    assert(self->calls > 0 && handle->calls > 0);
    self->calls--;
    if (UNLIKELY(--handle->calls == 0 && handle != self->handle))
        handle_close(handle, NULL);
    if (UNLIKELY(self->calls == 0 && self->closed))
        store_finish(self);
}

/* ---- a zone that was replaced ---- */

int64_t mono_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* Opens the address; a code with err. Without the interpreter's lock: others may go on. */
static int handle_open(PyObject *url, struct handle **ret, weir_error *err)
{
    struct handle *handle = calloc(1, sizeof *handle);
    const char *text = PyUnicode_AsUTF8AndSize(url, NULL); /* was read before, so it is there */
    if (!handle || !text) {
        free(handle);
        PyErr_Clear();
        *err = (weir_error){.code = WEIR_ENOMEM};
        snprintf(err->message, sizeof err->message, "%s", weir_strerror(WEIR_ENOMEM));
        return WEIR_ENOMEM;
    }
    PyThreadState *state = PyEval_SaveThread();
    int code = weir_store_open(text, &handle->store, err);
    PyEval_RestoreThread(state);
    if (code)
        free(handle);
    else
        *ret = handle;
    return code;
}

/* The package's store writes the line. */
static void store_tell_replaced(StoreObject *self, const char *why)
{
    PyObject *told = PyObject_CallMethod((PyObject *)self, "_replaced", "z", why);
    if (!told)
        PyErr_Clear();
    Py_XDECREF(told);
}

/* The states of the old zone are lost anyway: others count in the new one already. */
static void store_replace(StoreObject *self)
{
    struct handle *old = self->handle, *made = NULL;
    weir_error err;
    self->reopening = getpid();
    self->reopening_at_us = mono_us();
    self->reopen_at_us = self->reopening_at_us + REOPEN_EVERY_US;
    int code = handle_open(self->url, &made, &err);
    self->reopening = 0; /* before Python code runs: it may wait for a thread that waits for us */
    self->reopen_failed = code != 0;
    if (code)
        self->reopen_at_us = mono_us() + REOPEN_EVERY_US;
    if (code == 0 && (self->closed || self->handle != old ||
                      weir_store_set_time(made->store, self->stopped_at_us))) {
        handle_close(made, NULL); /* close() came meanwhile */
        return;
    }
    if (code == 0) {
        if (self->denies_full)
            weir__store_deny_full(made->store);
        made->since_us = weir__store_now(made->store);
        self->handle = made;
    }
    store_tell_replaced(self, code ? err.message : NULL);
}

/* Waits, without the interpreter's lock, while another thread opens the zone. Not where the attempt
 * before has failed: then calls fail at once. Not for ever: the other thread may hang, or the
 * interpreter may have ended it. Signals are handled when the call ends. */
static void store_await(const StoreObject *self, const struct handle *old)
{
    struct timespec pause = {.tv_nsec = 1000000};
    int64_t end_us = self->reopening_at_us + REOPEN_WAIT_US;
    while (self->handle == old && !self->closed && self->reopening && !self->reopen_failed &&
           mono_us() < end_us) {
        PyThreadState *state = PyEval_SaveThread();
        nanosleep(&pause, NULL);
        PyEval_RestoreThread(state);
        if (pause.tv_nsec < 8000000)
            pause.tv_nsec *= 2;
    }
}

bool store_reopen(StoreObject *self, struct handle **handle)
{
    struct handle *old = *handle;
    assert(old->calls > 0);
    if (self->reopening && self->reopening != getpid()) { /* after fork: that thread is not here */
        self->reopening = 0;
        self->reopen_at_us = 0;
    }
    if (self->reopening)
        store_await(self, old);
    else if (self->handle == old && !self->closed && mono_us() >= self->reopen_at_us)
        store_replace(self);
    if (self->handle == old || self->closed)
        return false;
    struct handle *now = store_begin(self);
    store_end(self, old);
    *handle = now;
    return true;
}

/* The package's store writes the line (_store.py); false or nothing: it was too soon. */
void store_tell(StoreObject *self, const struct handle *handle, bool away)
{
    PyObject *kind, *error, *trace;
    weir_error err;
    const char *why = NULL;
    if (away)
        self->away_at_us = mono_us();
    if (away == self->away || (!away && mono_us() - self->away_at_us < BACK_US))
        return;
    if (away)
        why = weir_store_check(handle->store, &err) ? err.message : "";
    PyErr_Fetch(&kind, &error, &trace);
    PyObject *told = PyObject_CallMethod((PyObject *)self, "_told", "z", why);
    if (!told)
        PyErr_Clear();
    else if (PyObject_IsTrue(told) == 1)
        self->away = away;
    Py_XDECREF(told);
    PyErr_Restore(kind, error, trace);
}

static PyObject *store_close(PyObject *op, PyObject *nothing)
{
    StoreObject *self = (StoreObject *)op;
    (void)nothing;
    self->closed = true;
    if (self->waiter && self->waiter_owner == getpid())
        weir_waiter_cancel(self->waiter);
    if (self->calls == 0)
        store_finish(self);
    Py_RETURN_NONE;
}

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"url", NULL};
    PyObject *url;
    struct handle *handle = NULL;
    weir_error err;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "U:Store", names, &url))
        return NULL;
    Py_ssize_t len;
    const char *text = PyUnicode_AsUTF8AndSize(url, &len);
    if (!text)
        return NULL;
    if (strlen(text) != (size_t)len)
        return raise_code(WEIR_EURL, "the address of the store holds a NUL");
    if (handle_open(url, &handle, &err))
        return raise_error(&err);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    StoreObject *self = (StoreObject *)alloc(type, 0); /* all of it is 0 */
    if (!self) {
        handle_close(handle, NULL);
        return NULL;
    }
    self->handle = handle;
    self->stopped_at_us = WEIR_NEVER;
    self->blocks = weir_store_blocks(handle->store);
    self->url = PyUnicode_FromObject(url);
    self->cache = PyDict_New();
    if (!self->url || !self->cache)
        Py_CLEAR(self);
    else if (self->blocks && weir_store_check(handle->store, &err))
        store_tell(self, handle, true);
    return (PyObject *)self;
}

static void store_dealloc(PyObject *op)
{
    StoreObject *self = (StoreObject *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    store_finish(self); /* no call runs: it would have a reference */
    PyErr_Restore(kind, error, trace);
    Py_XDECREF(self->url);
    Py_XDECREF(self->cache);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(op);
    Py_DECREF(type);
}

static PyObject *store_repr(PyObject *op)
{
    StoreObject *self = (StoreObject *)op;
    return PyUnicode_FromFormat("<weir.Store %R%s>", self->url, self->closed ? ", closed" : "");
}

static PyObject *store_reduce(PyObject *op, PyObject *nothing)
{
    (void)op;
    (void)nothing;
    PyErr_SetString(PyExc_TypeError,
                    "a store cannot be pickled or copied: open it by its address in each process");
    return NULL;
}

static PyObject *store_enter(PyObject *op, PyObject *nothing)
{
    (void)nothing;
    Py_INCREF(op);
    return op;
}

/* ---- take and peek ---- */

static void asked_clear(struct asked *asked)
{
    Py_XDECREF(asked->limit);
}

/* Key, limit and cost (NULL: 1). */
static int asked_read(StoreObject *self, PyObject *key, PyObject *limit, PyObject *cost,
                      struct asked *ret)
{
    ret->cost = 1;
    ret->limit = NULL;
    if (read_key(key, &ret->key, &ret->len))
        return -1;
    ret->limit = read_limit(self, limit);
    if (UNLIKELY(!ret->limit))
        return -1;
    if (cost && read_int(cost, "cost", &ret->cost)) {
        asked_clear(ret);
        return -1;
    }
    return 0;
}

static PyObject *store_ask_plain(StoreObject *self, struct asked *asked, bool peek)
{
    weir_decision d;
    weir_error err;
    int code;
    struct handle *handle = store_begin(self);
    if (!handle)
        return NULL;
    do {
        PyThreadState *state = store_leave(self);
        if (peek)
            code = weir_peek_n(handle->store, asked->key, asked->len, asked->limit->limit,
                               asked->cost, &d, &err);
        else
            code = weir_take_n(handle->store, asked->key, asked->len, asked->limit->limit,
                               asked->cost, &d, &err);
        store_return(state);
    } while (store_again(self, &handle, code));
    store_note(self, handle, code, &d);
    store_end(self, handle);
    return code ? raise_error(&err) : decision_make(&d, NULL, NULL);
}

static PyObject *store_ask_long(PyObject *op, PyObject *const *args, Py_ssize_t count,
                                PyObject *names, bool peek)
{
    static const char *const words[] = {"key", "limit", "cost", "wait", "least", "detail"};
    PyObject *given[6];
    struct asked asked;
    int64_t wait_us, least = 0;
    StoreObject *self = (StoreObject *)op;
    if (read_arguments(peek ? "peek" : "take", words, 6, 2, 3, args, count, names, given) ||
        read_time(given[3], "wait", WEIR_WAIT_DEFAULT, &wait_us) ||
        (given[4] && read_count(given[4], "least", &least)))
        return NULL;
    int detail = read_flag(given[5], 0);
    if (detail < 0 || asked_read(self, given[0], given[1], given[2], &asked))
        return NULL;
    PyObject *decision = wait_us == WEIR_WAIT_DEFAULT && !least && !detail
                             ? store_ask_plain(self, &asked, peek)
                             : store_ask(self, &asked, wait_us, least, detail, false, peek);
    asked_clear(&asked);
    return decision;
}

static inline PyObject *store_ask_quick(PyObject *op, PyObject *const *args, Py_ssize_t count,
                                        PyObject *names, bool peek)
{
    struct asked asked;
    if (UNLIKELY(names || count < 2 || count > 3))
        return store_ask_long(op, args, count, names, peek);
    if (asked_read((StoreObject *)op, args[0], args[1], count > 2 ? args[2] : NULL, &asked))
        return NULL;
    PyObject *decision = store_ask_plain((StoreObject *)op, &asked, peek);
    asked_clear(&asked);
    return decision;
}

static PyObject *store_take(PyObject *op, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    return store_ask_quick(op, args, count, names, false);
}

static PyObject *store_peek(PyObject *op, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    return store_ask_quick(op, args, count, names, true);
}

static PyObject *store_acquire(PyObject *op, PyObject *const *args, Py_ssize_t count,
                               PyObject *names)
{
    static const char *const words[] = {"key", "limit", "cost"};
    PyObject *given[3];
    struct asked asked;
    if (read_arguments("acquire", words, 3, 2, 3, args, count, names, given) ||
        asked_read((StoreObject *)op, given[0], given[1], given[2], &asked))
        return NULL;
    PyObject *decision =
        store_ask((StoreObject *)op, &asked, WEIR_WAIT_DEFAULT, 0, false, true, false);
    asked_clear(&asked);
    return decision;
}

/* ---- reset and settle ---- */

static PyObject *store_reset(PyObject *op, PyObject *key)
{
    StoreObject *self = (StoreObject *)op;
    const char *data;
    size_t len;
    weir_error err;
    int code;
    struct handle *handle = read_key(key, &data, &len) ? NULL : store_begin(self);
    if (!handle)
        return NULL;
    do {
        PyThreadState *state = store_leave(self);
        code = weir_reset_n(handle->store, data, len, &err);
        store_return(state);
    } while (store_again(self, &handle, code));
    store_end(self, handle);
    if (code)
        return raise_error(&err);
    Py_RETURN_NONE;
}

/* The text of a receipt, or of a decision's; a new reference. */
static PyObject *settle_receipt(PyObject *receipt)
{
    if (PyUnicode_Check(receipt)) {
        Py_INCREF(receipt);
        return receipt;
    }
    PyObject *text = NULL;
    if (Py_IS_TYPE(receipt, decision_type)) {
        text = PyObject_GetAttrString(receipt, "receipt");
    } else if (receipt == Py_None) {
        Py_INCREF(receipt);
        text = receipt;
    } else {
        PyErr_SetString(PyExc_TypeError, "the receipt must be str or Decision");
    }
    if (text == Py_None) {
        Py_DECREF(text);
        raise_code(WEIR_ERECEIPT,
                   "there is no receipt: nothing was charged, or take_all charged its requests "
                   "different amounts; then settle each with rows[i].receipt");
        return NULL;
    }
    return text;
}

/* The real cost. What a zone counted that was replaced is lost: nothing of it is given back in the
 * new one, where others are charged. */
static int64_t settle_cost(const struct handle *handle, const char *receipt, int64_t actual)
{
    struct weir__correction charge;
    bool lost = handle->since_us > 0 && weir__receipt_read(receipt, &charge) &&
                charge.charged_at_us < handle->since_us;
    return lost && actual < charge.charged ? charge.charged : actual;
}

static PyObject *settle(StoreObject *self, const struct asked *asked, PyObject *receipt)
{
    Py_ssize_t len;
    weir_error err;
    const char *text = PyUnicode_AsUTF8AndSize(receipt, &len);
    if (!text)
        return NULL;
    if (strlen(text) != (size_t)len)
        return raise_code(WEIR_ERECEIPT, "the receipt holds a NUL");
    int code;
    struct handle *handle = store_begin(self);
    if (!handle)
        return NULL;
    do {
        PyThreadState *state = store_leave(self);
        code = weir_settle_n(handle->store, asked->key, asked->len, asked->limit->limit, text,
                             settle_cost(handle, text, asked->cost), &err);
        store_return(state);
    } while (store_again(self, &handle, code));
    store_end(self, handle);
    if (code && code != WEIR_ESETTLED)
        return raise_error(&err);
    return PyBool_FromLong(code == 0);
}

static PyObject *store_settle(PyObject *op, PyObject *const *args, Py_ssize_t count,
                              PyObject *names)
{
    static const char *const words[] = {"key", "limit", "receipt", "actual"};
    PyObject *given[4];
    struct asked asked;
    if (read_arguments("settle", words, 4, 4, 4, args, count, names, given) ||
        asked_read((StoreObject *)op, given[0], given[1], given[3], &asked))
        return NULL;
    PyObject *receipt = settle_receipt(given[2]);
    PyObject *settled = receipt ? settle((StoreObject *)op, &asked, receipt) : NULL;
    Py_XDECREF(receipt);
    asked_clear(&asked);
    return settled;
}

/* ---- what a store knows ---- */

static PyObject *store_counts(PyObject *op, PyObject *nothing)
{
    StoreObject *self = (StoreObject *)op;
    weir_counts counts;
    (void)nothing;
    struct handle *handle = store_begin(self);
    if (!handle)
        return NULL;
    int code = weir_store_counts(handle->store, &counts);
    store_end(self, handle);
    if (code)
        return raise_code(code, NULL);
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "allowed", counts.allowed, "denied",
                         counts.denied, "delayed", counts.delayed, "failed", counts.failed,
                         "degraded", counts.degraded);
}

static PyObject *store_info(PyObject *op, PyObject *nothing)
{
    StoreObject *self = (StoreObject *)op;
    weir_zone_info info;
    (void)nothing;
    struct handle *handle = store_begin(self);
    if (!handle)
        return NULL;
    int code = weir_store_info(handle->store, &info);
    store_end(self, handle);
    if (code)
        return raise_code(code,
                          code == WEIR_EUNSUPPORTED
                              ? "info() is for zones; a redis:// store has counts() and check()"
                              : NULL);
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "size", info.size,
                         "keys", info.keys, "capacity", info.capacity, "large_bytes",
                         info.large_bytes, "large_used", info.large_used, "limits", info.limits,
                         "limits_max", info.limits_max, "evicted_fresh", info.evicted_fresh,
                         "evicted_unused", info.evicted_unused, "evicted_soonest",
                         info.evicted_soonest, "repairs", info.repairs, "refused", info.refused,
                         "evicted_receipts", info.evicted_receipts);
}

static PyObject *store_check(PyObject *op, PyObject *nothing)
{
    StoreObject *self = (StoreObject *)op;
    weir_error err;
    (void)nothing;
    int code;
    struct handle *handle = store_begin(self);
    if (!handle)
        return NULL;
    do {
        PyThreadState *state = PyEval_SaveThread(); /* a zone may be large */
        code = weir_store_check(handle->store, &err);
        PyEval_RestoreThread(state);
    } while (store_again(self, &handle, code));
    store_end(self, handle);
    if (code)
        return raise_error(&err);
    Py_RETURN_NONE;
}

/* _deny_full(): from now on, takes that find no room are denied, and do not fail. */
static PyObject *store_deny_full(PyObject *op, PyObject *nothing)
{
    StoreObject *self = (StoreObject *)op;
    (void)nothing;
    struct handle *handle = store_begin(self);
    if (!handle)
        return NULL;
    if (!self->denies_full)
        weir__store_deny_full(handle->store);
    self->denies_full = true;
    store_end(self, handle);
    Py_RETURN_NONE;
}

static PyObject *store_set_time(PyObject *op, PyObject *time)
{
    StoreObject *self = (StoreObject *)op;
    int64_t us = WEIR_NEVER;
    if (time != Py_None && read_count(time, "time", &us))
        return NULL;
    struct handle *handle = store_begin(self);
    if (!handle)
        return NULL;
    bool alone = self->calls == 1;
    int code = alone ? weir_store_set_time(handle->store, us) : WEIR_EINVAL;
    if (code == 0)
        self->stopped_at_us = us;
    store_end(self, handle);
    if (code)
        return raise_code(code, alone ? "invalid time: expected microseconds below 2**53"
                                      : "other calls use the store: set its time while none does");
    Py_RETURN_NONE;
}

/* ---- the type ---- */

static PyObject *store_url(PyObject *op, void *closure)
{
    PyObject *url = ((StoreObject *)op)->url;
    (void)closure;
    Py_INCREF(url);
    return url;
}

static PyObject *store_limit(PyObject *op, PyObject *text)
{
    return (PyObject *)read_limit((StoreObject *)op, text);
}

static PyMemberDef store_members[] = {
    {"closed", T_BOOL, offsetof(StoreObject, closed), READONLY, "Whether it was closed."},
    {"blocks", T_BOOL, offsetof(StoreObject, blocks), READONLY,
     "Whether calls wait for a network: those of redis:// do."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef store_properties[] = {
    {"url", store_url, NULL, "The address it was opened with.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define QUICK (METH_FASTCALL | METH_KEYWORDS)
static PyMethodDef store_methods[] = {
    {"take", FASTCALL(store_take), QUICK,
     "take($self, key, limit, cost=1, *, wait=None, least=0, detail=False)\n--\n\n"
     "Decides and charges. A cost of 0 asks without charging."},
    {"peek", FASTCALL(store_peek), QUICK,
     "peek($self, key, limit, cost=1, *, wait=None, least=0, detail=False)\n--\n\n"
     "Says what take would answer. Charges nothing."},
    {"take_all", FASTCALL(store_take_all), QUICK,
     "take_all($self, requests, *, wait=None, acquire=False)\n--\n\n"
     "All requests or none, at one instant. Each is (key, limit), (key, limit, cost) or (key, "
     "limit, cost, least). The answer has one row per limit."},
    {"peek_all", FASTCALL(store_peek_all), QUICK,
     "peek_all($self, requests, *, wait=None)\n--\n\nWhat take_all would answer."},
    {"take_many", FASTCALL(store_take_many), QUICK,
     "take_many($self, requests)\n--\n\nMany independent requests in one call: a list of "
     "decisions. One that failed has a code and an error."},
    {"wait", FASTCALL(store_wait), QUICK,
     "wait($self, key, limit, cost=1, max_wait=None, *, acquire=False)\n--\n\n"
     "Takes, and sleeps until the request may go ahead. What cannot be in time is denied."},
    {"settle", FASTCALL(store_settle), QUICK,
     "settle($self, key, limit, receipt, actual)\n--\n\nCorrects a charge to its real cost, once. "
     "False: it was settled before."},
    {"reset", store_reset, METH_O, "reset($self, key, /)\n--\n\nForgets a key, all its limits."},
    {"acquire", FASTCALL(store_acquire), QUICK,
     "acquire($self, key, limit, cost=1)\n--\n\nTakes and holds a lease of the concurrent limit."},
    {"renew", FASTCALL(store_renew), QUICK,
     "renew($self, key, limit, lease)\n--\n\nStarts the lease's time again."},
    {"release", FASTCALL(store_release), QUICK,
     "release($self, key, limit, lease)\n--\n\nGives the slots back."},
    {"wakeup", FASTCALL(store_wakeup), QUICK,
     "wakeup($self, key, limit)\n--\n\nA descriptor that tells an event loop of released slots."},
    {"limit", store_limit, METH_O,
     "limit($self, text, /)\n--\n\nA Limit of this text, from the store's memory of them."},
    {"counts", store_counts, METH_NOARGS,
     "counts($self)\n--\n\nHow the store decided the takes of this process."},
    {"info", store_info, METH_NOARGS, "info($self)\n--\n\nHow full a zone is."},
    {"check", store_check, METH_NOARGS,
     "check($self)\n--\n\nRaises what is wrong with the store: a zone is damaged, a server of "
     "redis:// cannot be reached."},
    {"set_time", store_set_time, METH_O,
     "set_time($self, us, /)\n--\n\nFor tests: stops the store's clock at this time. None: the "
     "system's clock again."},
    {"_deny_full", store_deny_full, METH_NOARGS, NULL},
    {"close", store_close, METH_NOARGS,
     "close($self)\n--\n\nCloses the store. Waits end; other calls go on to their end."},
    {"__enter__", store_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)store_close, METH_VARARGS, NULL},
    {"__reduce__", store_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot store_slots[] = {
    {Py_tp_new, store_new},
    {Py_tp_dealloc, store_dealloc},
    {Py_tp_repr, store_repr},
    {Py_tp_members, store_members},
    {Py_tp_methods, store_methods},
    {Py_tp_getset, store_properties},
    {Py_tp_doc, "Store(url)\n--\n\nWhere states are kept: memory:64m, shm:/name, file:/path or "
                "redis://host."},
    {0, NULL},
};

PyType_Spec store_spec = {"weir._weir.Store", sizeof(StoreObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, store_slots};
