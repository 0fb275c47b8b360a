/* Leases by their id, and the descriptors that tell an event loop of released slots. */
#include "binding.h"

PyTypeObject *wakeup_type;

/* ---- renew and release ---- */

struct held {
    const char *key;
    size_t len;
    LimitObject *limit; /* a reference */
    uint64_t lease;
};

static int held_read(StoreObject *self, const char *function, PyObject *const *args,
                     Py_ssize_t count, PyObject *names, struct held *ret)
{
    static const char *const words[] = {"key", "limit", "lease"};
    PyObject *given[3];
    int64_t lease;
    if (read_arguments(function, words, 3, 3, 3, args, count, names, given) ||
        read_count(given[2], "lease", &lease) || read_key(given[0], &ret->key, &ret->len))
        return -1;
    ret->lease = (uint64_t)lease;
    ret->limit = read_limit(self, given[1]);
    return ret->limit ? 0 : -1;
}

static PyObject *held_change(StoreObject *self, struct held *held,
                             int (*change)(weir_store *, const void *, size_t, const weir_limit *,
                                           uint64_t, weir_error *))
{
    weir_error err;
    int code = 0;
    struct handle *handle = store_begin(self);
    bool open = handle != NULL;
    if (open) {
        do {
            PyThreadState *state = store_leave(self);
            code =
                change(handle->store, held->key, held->len, held->limit->limit, held->lease, &err);
            store_return(state);
        } while (store_again(self, &handle, code));
        store_end(self, handle);
    }
    Py_DECREF(held->limit);
    if (!open)
        return NULL;
    if (code)
        return raise_error(&err);
    Py_RETURN_NONE;
}

PyObject *store_renew(PyObject *op, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    struct held held;
    if (held_read((StoreObject *)op, "renew", args, count, names, &held))
        return NULL;
    return held_change((StoreObject *)op, &held, weir_renew_n);
}

PyObject *store_release(PyObject *op, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    struct held held;
    if (held_read((StoreObject *)op, "release", args, count, names, &held))
        return NULL;
    return held_change((StoreObject *)op, &held, weir_release_n);
}

/* ---- wake-ups ---- */

typedef struct {
    PyObject ob_base;
    weir_wakeup *wakeup;   /* NULL: closed */
    StoreObject *store;    /* a reference */
    struct handle *handle; /* as long as the wake-up is open it counts as a call of it */
} WakeupObject;

PyObject *store_wakeup(PyObject *op, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    static const char *const words[] = {"key", "limit"};
    StoreObject *store = (StoreObject *)op;
    PyObject *given[2];
    const char *key;
    size_t len;
    weir_error err;
    if (read_arguments("wakeup", words, 2, 2, 2, args, count, names, given) ||
        read_key(given[0], &key, &len))
        return NULL;
    LimitObject *limit = read_limit(store, given[1]);
    if (!limit)
        return NULL;
    WakeupObject *self = PyObject_New(WakeupObject, wakeup_type);
    struct handle *handle = self ? store_begin(store) : NULL;
    if (!handle) {
        if (self) {
            self->wakeup = NULL;
            self->store = NULL;
        }
        Py_XDECREF(self);
        Py_DECREF(limit);
        return NULL;
    }
    self->wakeup = NULL;
    Py_INCREF(op);
    self->store = store;
    self->handle = handle;
    int code = weir_wakeup_open_n(handle->store, key, len, limit->limit, &self->wakeup, &err);
    Py_DECREF(limit);
    if (code) {
        store_end(store, handle);
        Py_DECREF(self);
        return raise_error(&err);
    }
    return (PyObject *)self;
}

static PyObject *wakeup_close(PyObject *op, PyObject *nothing)
{
    WakeupObject *self = (WakeupObject *)op;
    weir_wakeup *wakeup = self->wakeup;
    (void)nothing;
    self->wakeup = NULL;
    if (wakeup) {
        weir_wakeup_close(wakeup);
        store_end(self->store, self->handle);
    }
    Py_RETURN_NONE;
}

static void wakeup_dealloc(PyObject *op)
{
    WakeupObject *self = (WakeupObject *)op;
    PyTypeObject *type = Py_TYPE(op);
    Py_XDECREF(wakeup_close(op, NULL));
    Py_XDECREF(self->store);
    PyObject_Free(op);
    Py_DECREF(type);
}

static bool wakeup_is_open(const WakeupObject *self)
{
    if (!self->wakeup)
        raise_code(WEIR_EINVAL, "the wake-up is closed");
    return self->wakeup != NULL;
}

static PyObject *wakeup_fileno(PyObject *op, PyObject *nothing)
{
    (void)nothing;
    if (!wakeup_is_open((WakeupObject *)op))
        return NULL;
    return PyLong_FromLong(weir_wakeup_fd(((WakeupObject *)op)->wakeup));
}

static PyObject *wakeup_arm(PyObject *op, PyObject *nothing)
{
    (void)nothing;
    if (!wakeup_is_open((WakeupObject *)op))
        return NULL;
    int code = weir_wakeup_arm(((WakeupObject *)op)->wakeup);
    if (code)
        return raise_code(code, "the wake-up belongs to the process that made it");
    Py_RETURN_NONE;
}

static PyMethodDef wakeup_methods[] = {
    {"fileno", wakeup_fileno, METH_NOARGS,
     "fileno($self)\n--\n\nThe descriptor to poll for reading."},
    {"arm", wakeup_arm, METH_NOARGS,
     "arm($self)\n--\n\nMakes it quiet until the next release. Call it before acquiring."},
    {"close", wakeup_close, METH_NOARGS, "close($self)\n--\n\nCloses it."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot wakeup_slots[] = {
    {Py_tp_new, no_new},
    {Py_tp_dealloc, wakeup_dealloc},
    {Py_tp_methods, wakeup_methods},
    {Py_tp_doc, "A descriptor that is readable when slots of a key were released."},
    {0, NULL},
};

PyType_Spec wakeup_spec = {"weir.Wakeup", sizeof(WakeupObject), 0, Py_TPFLAGS_DEFAULT,
                           wakeup_slots};
