/* weir.Decision: what the library answered, as it answered it. Numbers become objects only when
 * they are read. */
#include "binding.h"

#include <stddef.h>
#include <string.h>

#define REFUSED_RETRY_US 1000000 /* as a store that is out of reach says */

PyTypeObject *decision_type;

PyObject *decision_make(const weir_decision *d, PyObject *rows, PyObject *limits)
{
    DecisionObject *self = PyObject_New(DecisionObject, decision_type);
    if (UNLIKELY(!self)) {
        Py_XDECREF(rows);
        Py_XDECREF(limits);
        return NULL;
    }
    self->d = *d;
    self->rows = rows;
    self->limits = limits;
    return (PyObject *)self;
}

PyObject *decision_rows(const weir_decision *rows, size_t n)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; tuple && i < n; i++) {
        PyObject *row = decision_make(&rows[i], NULL, NULL);
        if (!row || PyTuple_SetItem(tuple, (Py_ssize_t)i, row))
            Py_CLEAR(tuple);
    }
    return tuple;
}

static void decision_dealloc(PyObject *op)
{
    DecisionObject *self = (DecisionObject *)op;
    PyTypeObject *type = Py_TYPE(op);
    Py_XDECREF(self->rows);
    Py_XDECREF(self->limits);
    PyObject_Free(op);
    Py_DECREF(type);
}

static int decision_bool(PyObject *op)
{
    return ((DecisionObject *)op)->d.allowed;
}

static PyObject *decision_repr(PyObject *op)
{
    const weir_decision *d = &((DecisionObject *)op)->d;
    return PyUnicode_FromFormat(
        "weir.Decision(allowed=%s, limit=%lld, remaining=%lld, retry_after_us=%lld, "
        "reset_after_us=%lld, delay_us=%lld, granted=%lld)",
        d->allowed ? "True" : "False", (long long)d->limit, (long long)d->remaining,
        (long long)d->retry_after_us, (long long)d->reset_after_us, (long long)d->delay_us,
        (long long)d->granted);
}

/* ---- times ---- */

static PyObject *timedelta_of(int64_t us)
{
    return PyObject_CallFunction(timedelta_type, "iiL", 0, 0, (long long)us);
}

static PyObject *decision_retry_after(PyObject *op, void *closure)
{
    int64_t us = ((DecisionObject *)op)->d.retry_after_us;
    (void)closure;
    if (us == WEIR_NEVER)
        Py_RETURN_NONE;
    return timedelta_of(us);
}

static PyObject *decision_reset_after(PyObject *op, void *closure)
{
    (void)closure;
    return timedelta_of(((DecisionObject *)op)->d.reset_after_us);
}

static PyObject *decision_delay(PyObject *op, void *closure)
{
    (void)closure;
    return timedelta_of(((DecisionObject *)op)->d.delay_us);
}

/* ---- the rest ---- */

static PyObject *decision_receipt(PyObject *op, void *closure)
{
    weir_decision *d = &((DecisionObject *)op)->d;
    char receipt[WEIR_RECEIPT_SIZE];
    (void)closure;
    if (!d->allowed || d->uneven || (d->charged == 0 && !d->degraded))
        Py_RETURN_NONE;
    weir_receipt(d, receipt);
    return PyUnicode_FromString(receipt);
}

static PyObject *decision_get_rows(PyObject *op, void *closure)
{
    PyObject *rows = ((DecisionObject *)op)->rows;
    (void)closure;
    if (!rows)
        return PyTuple_New(0);
    Py_INCREF(rows);
    return rows;
}

static PyObject *decision_error(PyObject *op, void *closure)
{
    int code = ((DecisionObject *)op)->d.code;
    (void)closure;
    if (code == 0)
        Py_RETURN_NONE;
    return error_of(code);
}

/* ---- fields of an HTTP answer ---- */

/* Names of the limits: as many as there are rows, None for the algorithm's word. */
static int fields_names(PyObject *names, Py_ssize_t count, const char **ret)
{
    if (PyTuple_Size(names) != count) {
        PyErr_Format(PyExc_ValueError, "%zd names for %zd limits", PyTuple_Size(names), count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        ret[i] = NULL;
        if (name == Py_None)
            continue;
        if (!PyUnicode_Check(name)) {
            PyErr_SetString(PyExc_TypeError, "a name must be str or None");
            return -1;
        }
        ret[i] = PyUnicode_AsUTF8AndSize(name, NULL);
        if (!ret[i])
            return -1;
    }
    return 0;
}

/* The requests as weir_take_all was given them, over a copy of the rows. */
static size_t fields_requests(const DecisionObject *self, weir_request *requests,
                              weir_decision *rows)
{
    Py_ssize_t n = PyTuple_Size(self->limits), at = 0;
    assert(n <= WEIR_LIMITS_MAX && PyTuple_Size(self->rows) <= WEIR_LIMITS_MAX);
    for (Py_ssize_t i = 0; i < n; i++) {
        const LimitObject *limit = (LimitObject *)PyTuple_GetItem(self->limits, i);
        weir_request_init(&requests[i], NULL, 0, limit->limit);
        requests[i].detail = &rows[at];
        for (size_t k = 0; k < weir_limit_count(limit->limit); k++, at++)
            rows[at] = ((DecisionObject *)PyTuple_GetItem(self->rows, at))->d;
    }
    return (size_t)n;
}

/* Lines "name: value" as a list of pairs. */
static PyObject *fields_pairs(char *text)
{
    PyObject *list = PyList_New(0);
    for (char *line = text; list && *line;) {
        char *colon = strchr(line, ':'), *end = strchr(line, '\n');
        assert(colon && end && colon < end);
        PyObject *pair = Py_BuildValue("(s#s#)", line, (Py_ssize_t)(colon - line), colon + 2,
                                       (Py_ssize_t)(end - colon - 2));
        if (!pair || PyList_Append(list, pair))
            Py_CLEAR(list);
        Py_XDECREF(pair);
        line = end + 1;
    }
    return list;
}

/* _refused(full): what a peek allowed, as a denial: the store has no room, or it failed. */
static PyObject *decision_refused(PyObject *op, PyObject *flag)
{
    const DecisionObject *self = (DecisionObject *)op;
    weir_decision d = self->d, rows[WEIR_LIMITS_MAX];
    Py_ssize_t n = self->rows ? PyTuple_Size(self->rows) : 0;
    int full = PyObject_IsTrue(flag);
    if (full < 0)
        return NULL;
    for (Py_ssize_t i = -1; i < n; i++) {
        weir_decision *row = i < 0 ? &d : &rows[i];
        if (i >= 0)
            *row = ((DecisionObject *)PyTuple_GetItem(self->rows, i))->d;
        row->allowed = false;
        row->full = full;
        row->closed = !full;
        row->remaining = row->granted = row->charged = row->delay_us = row->reset_after_us = 0;
        row->retry_after_us = REFUSED_RETRY_US;
    }
    d.binding = 0; /* none of the limits denies: the first one is told */
    d.limit = n > 0 ? rows[0].limit : d.limit;
    PyObject *all = decision_rows(rows, (size_t)n);
    Py_XINCREF(self->limits);
    if (!all)
        Py_XDECREF(self->limits);
    return all ? decision_make(&d, all, self->limits) : NULL;
}

static PyObject *decision_fields(PyObject *op, PyObject *args, PyObject *keywords)
{
    static char *words[] = {"style", "names", NULL};
    const DecisionObject *self = (DecisionObject *)op;
    const char *style = "ietf", *named[WEIR_LIMITS_MAX];
    PyObject *names = Py_None;
    weir_request requests[WEIR_LIMITS_MAX];
    weir_decision rows[WEIR_LIMITS_MAX];
    char text[WEIR_FIELDS_SIZE];
    weir_error err;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|sO:fields", words, &style, &names))
        return NULL;
    if (!self->rows || !self->limits) {
        PyErr_SetString(PyExc_ValueError, "the decision has no rows: ask with detail=True");
        return NULL;
    }
    PyObject *held = names == Py_None ? NULL : PySequence_Tuple(names);
    if (names != Py_None && (!held || fields_names(held, PyTuple_Size(self->rows), named))) {
        Py_XDECREF(held);
        return NULL;
    }
    size_t n = fields_requests(self, requests, rows);
    int code =
        weir_fields(style, requests, n, held ? named : NULL, &self->d, text, sizeof text, &err);
    Py_XDECREF(held);
    return code ? raise_error(&err) : fields_pairs(text);
}

/* ---- the type ---- */

#define NUMBER(name, text)                                                                         \
    {                                                                                              \
#name, T_LONGLONG, offsetof(DecisionObject, d) + offsetof(weir_decision, name), READONLY,  \
            text                                                                                   \
    }

static PyMemberDef decision_members[] = {
    {"allowed", T_BOOL, offsetof(DecisionObject, d) + offsetof(weir_decision, allowed), READONLY,
     "May it go ahead."},
    NUMBER(limit, "The most that a fresh state admits at once."),
    NUMBER(remaining, "What is left, in whole units."),
    NUMBER(retry_after_us, "When the same request would be allowed; 0 if it is; -1: never."),
    NUMBER(reset_after_us, "When the state is fresh again."),
    NUMBER(delay_us, "How long to wait before going ahead."),
    NUMBER(granted, "What the caller may use; 0 if denied."),
    NUMBER(charged, "What the store was charged."),
    NUMBER(time_us, "When it was decided, by the store's clock."),
    {"lease", T_ULONGLONG, offsetof(DecisionObject, d) + offsetof(weir_decision, lease), READONLY,
     "The lease that is held; 0: none."},
    {"degraded", T_BOOL, offsetof(DecisionObject, d) + offsetof(weir_decision, degraded), READONLY,
     "Decided by a local fallback: the store was out of reach."},
    {"closed", T_BOOL, offsetof(DecisionObject, d) + offsetof(weir_decision, closed), READONLY,
     "Denied by fail=closed, because the store was out of reach; in the middleware also because it "
     "failed."},
    {"full", T_BOOL, offsetof(DecisionObject, d) + offsetof(weir_decision, full), READONLY,
     "In the middleware: denied because the store has no room for the key."},
    {"local", T_BOOL, offsetof(DecisionObject, d) + offsetof(weir_decision, local), READONLY,
     "Decided from a slice of a Redis store, without a call."},
    {"binding", T_UBYTE, offsetof(DecisionObject, d) + offsetof(weir_decision, binding), READONLY,
     "Which limit bound, from 0, in the order given."},
    {"code", T_INT, offsetof(DecisionObject, d) + offsetof(weir_decision, code), READONLY,
     "take_many: 0, or why this request was not decided."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef decision_properties[] = {
    {"retry_after", decision_retry_after, NULL, "retry_after_us as a timedelta; None: never.",
     NULL},
    {"reset_after", decision_reset_after, NULL, "reset_after_us as a timedelta.", NULL},
    {"delay", decision_delay, NULL, "delay_us as a timedelta.", NULL},
    {"receipt", decision_receipt, NULL, "Names the charge for settle; None: see the rows, if any.",
     NULL},
    {"rows", decision_get_rows, NULL, "One decision per limit, if detail was asked for.", NULL},
    {"error", decision_error, NULL, "take_many: the exception of the code, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef decision_methods[] = {
    {"fields", (PyCFunction)(void (*)(void))decision_fields, METH_VARARGS | METH_KEYWORDS,
     "fields($self, style='ietf', names=None)\n--\n\nThe HTTP fields that tell of this "
     "decision, as (name, value) pairs. It needs rows: ask with detail=True."},
    {"_refused", decision_refused, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot decision_slots[] = {
    {Py_tp_new, no_new},
    {Py_tp_dealloc, decision_dealloc},
    {Py_tp_repr, decision_repr},
    {Py_nb_bool, decision_bool},
    {Py_tp_members, decision_members},
    {Py_tp_getset, decision_properties},
    {Py_tp_methods, decision_methods},
    {Py_tp_doc, "What a store decided. It is true if the request may go ahead."},
    {0, NULL},
};

PyType_Spec decision_spec = {"weir.Decision", sizeof(DecisionObject), 0, Py_TPFLAGS_DEFAULT,
                             decision_slots};
