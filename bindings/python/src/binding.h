/*
 * The extension of the Python package `weir`: what its files share. It is built for the limited API
 * of Python 3.9, so one file serves every later version.
 *
 * What holds
 *   - Every argument becomes a C value before a store is looked at: what converts it may run any
 *     Python code, also one that closes the store.
 *   - A call counts itself in the store's handle while it uses it. close() marks the store; the
 *     last call that ends really closes it. If somebody has replaced the zone, another handle
 *     takes the place of the first, which is closed when its last call ends. One thread opens it,
 *     the others wait for that thread.
 *   - The lock of the interpreter is held in calls of local stores, and released for those of
 *     redis://, for waits, and to open and close.
 *   - The types are made once per process and never go. Only the main interpreter has them.
 */
#ifndef WEIR_PYTHON_H
#define WEIR_PYTHON_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <structmember.h>

#include "weir.h"

#include <assert.h>
#include <sys/types.h>

/* Both are part of the stable ABI from Python 3.10 on. CPython 3.9 has them with the same meaning,
 * but does not declare them here. */
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif
PyAPI_FUNC(const char *) PyUnicode_AsUTF8AndSize(PyObject *text, Py_ssize_t *size);

typedef PyObject *(*weir_fastcall)(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names);
#define FASTCALL(function) ((PyCFunction)(void (*)(void))(weir_fastcall)(function))

#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

typedef struct {
    PyObject ob_base;
    weir_limit *limit;
    int64_t lease_us; /* of its concurrent limit; 0: it has none */
} LimitObject;

typedef struct {
    PyObject ob_base;
    weir_decision d;
    PyObject *rows;   /* NULL, or a tuple of decisions, one per limit */
    PyObject *limits; /* NULL, or the limits of the rows, one per request */
} DecisionObject;

/* An open store of the library. */
struct handle {
    weir_store *store;
    Py_ssize_t calls; /* that use it now; wake-ups count as well */
    int64_t since_us; /* when it took the place of a zone that was replaced; 0: it is the first */
};

typedef struct {
    PyObject ob_base;
    struct handle *handle; /* NULL: closed */
    PyObject *url;
    PyObject *cache;      /* limits by their text, the oldest first */
    Py_ssize_t calls;     /* of all its handles */
    int64_t reopen_at_us; /* not before: when a zone was replaced */
    pid_t reopening;      /* 0, or the process of which a thread opens another handle */
    int64_t reopening_at_us;
    int64_t stopped_at_us; /* what set_time said */
    bool closed, blocks, denies_full, reopen_failed;
    bool away;           /* the log was told that a local fallback decides */
    int64_t away_at_us;  /* when it decided last */
    weir_waiter *waiter; /* NULL, or what cancels waits of this process */
    pid_t waiter_owner;
} StoreObject;

extern PyTypeObject *limit_type, *decision_type, *store_type, *wakeup_type;
extern PyObject *timedelta_type;

/* ---- errors.c ---- */

int errors_init(PyObject *module);
/* Raises the exception of a code; always NULL. */
PyObject *raise_error(const weir_error *err);
PyObject *raise_code(int code, const char *message);
/* A new exception of a code, not raised. */
PyObject *error_of(int code);

/* ---- arguments.c ---- */

/* What every verb is about. The bytes belong to the caller's object; the limit is a reference. */
struct asked {
    const char *key;
    size_t len;
    LimitObject *limit;
    int64_t cost;
};

/* Sorts arguments: names has `count` of them, of which the first `positional` may come without
 * their name and the first `required` must be there. Missing ones are NULL in ret. 0, or -1 with an
 * exception. */
int read_arguments(const char *function, const char *const *names, int count, int required,
                   int positional, PyObject *const *args, Py_ssize_t given, PyObject *keywords,
                   PyObject **ret);
int read_key(PyObject *object, const char **ret, size_t *ret_len);
/* An int within 64 bits, or what has __index__. `what` is its name in messages. */
int read_int(PyObject *object, const char *what, int64_t *ret);
/* Like read_int, but what is below 0 is refused. */
int read_count(PyObject *object, const char *what, int64_t *ret);
/* Seconds, a timedelta or math.inf in microseconds; `none` for None. */
int read_time(PyObject *object, const char *what, int64_t none, int64_t *ret);
/* True or false; `otherwise` where it is missing. -1: an exception. */
int read_flag(PyObject *object, int otherwise);
/* A limit of an object, or of text by way of the store's cache; a new reference. */
LimitObject *read_limit(StoreObject *store, PyObject *object);

/* ---- limit.c, decision.c, store.c, requests.c, leases.c ---- */

PyObject *no_new(PyTypeObject *type, PyObject *args, PyObject *keywords);
extern PyType_Spec limit_spec, decision_spec, store_spec, wakeup_spec;

LimitObject *limit_make(const char *text, size_t len);
/* A new decision. `rows` (stolen) and `limits` (stolen) may be NULL. */
PyObject *decision_make(const weir_decision *d, PyObject *rows, PyObject *limits);
/* A tuple of n decisions. */
PyObject *decision_rows(const weir_decision *rows, size_t n);

/* Begins a call: NULL with an exception where the store is closed. */
struct handle *store_begin(StoreObject *store);
void store_end(StoreObject *store, struct handle *handle);
/* Whether a call that failed is to be made again: its zone was replaced, and the one that is there
 * now is open. The call goes on with that handle. */
bool store_reopen(StoreObject *store, struct handle **handle);
static inline bool store_again(StoreObject *store, struct handle **handle, int code)
{
    return UNLIKELY(code == WEIR_EGONE) && store_reopen(store, handle);
}
int64_t mono_us(void);
/* The thread gives the interpreter's lock away where a call blocks. */
static inline PyThreadState *store_leave(const StoreObject *store)
{
    return store->blocks ? PyEval_SaveThread() : NULL;
}
static inline void store_return(PyThreadState *state)
{
    if (state)
        PyEval_RestoreThread(state);
}

/* Tells the log who decides now, if that has changed. Within a call. */
void store_tell(StoreObject *store, const struct handle *handle, bool away);
/* A decision: does it change who decides? One from a slice proves nothing. While one server of a
 * Cluster is away, the others decide: it is over when the fallback has not decided for a while. */
static inline void store_note(StoreObject *store, const struct handle *handle, int code,
                              const weir_decision *d)
{
    if (UNLIKELY(store->blocks && code == 0 && (d->degraded || store->away) && !d->local))
        store_tell(store, handle, d->degraded);
}

PyObject *store_take_all(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *store_peek_all(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *store_take_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *store_wait(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
/* A take or peek with everything that can be said. */
PyObject *store_ask(StoreObject *store, const struct asked *asked, int64_t wait_us, int64_t least,
                    bool detail, bool acquire, bool peek);
PyObject *store_renew(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *store_release(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *store_wakeup(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);

#endif
