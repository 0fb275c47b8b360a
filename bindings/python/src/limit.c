/* weir.Limit: limits that were read once. They never change, so any thread may use them. */
#include "binding.h"

#include <string.h>

PyTypeObject *limit_type;

LimitObject *limit_make(const char *text, size_t len)
{
    weir_error err;
    weir_limit *limit = NULL;
    if (weir_limit_parse_n(text, len, &limit, &err)) {
        raise_error(&err);
        return NULL;
    }
    LimitObject *self = PyObject_New(LimitObject, limit_type);
    if (!self) {
        weir_limit_free(limit);
        return NULL;
    }
    self->limit = limit;
    self->lease_us = 0;
    for (size_t i = 0; i < weir_limit_count(limit); i++) {
        if (!strcmp(weir_limit_kind(limit, i), "concurrent"))
            self->lease_us = weir_limit_period_us(limit, i);
    }
    return self;
}

static PyObject *limit_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"text", NULL};
    PyObject *text;
    Py_ssize_t len;
    (void)type; /* it has no subclasses */
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O:Limit", names, &text))
        return NULL;
    if (Py_IS_TYPE(text, limit_type)) {
        Py_INCREF(text);
        return text;
    }
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "the limit must be str or Limit");
        return NULL;
    }
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &len);
    return utf8 ? (PyObject *)limit_make(utf8, (size_t)len) : NULL;
}

static void limit_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    weir_limit_free(((LimitObject *)op)->limit);
    PyObject_Free(op);
    Py_DECREF(type);
}

static PyObject *limit_str(PyObject *op)
{
    return PyUnicode_FromString(weir_limit_text(((LimitObject *)op)->limit));
}

static PyObject *limit_text(PyObject *op, void *closure)
{
    (void)closure;
    return limit_str(op);
}

static PyObject *limit_repr(PyObject *op)
{
    return PyUnicode_FromFormat("weir.Limit('%s')", weir_limit_text(((LimitObject *)op)->limit));
}

static Py_ssize_t limit_len(PyObject *op)
{
    return (Py_ssize_t)weir_limit_count(((LimitObject *)op)->limit);
}

static Py_hash_t limit_hash(PyObject *op)
{
    PyObject *text = limit_str(op);
    Py_hash_t hash = text ? PyObject_Hash(text) : -1;
    Py_XDECREF(text);
    return hash;
}

static PyObject *limit_compare(PyObject *a, PyObject *b, int how)
{
    if (!Py_IS_TYPE(a, limit_type) || !Py_IS_TYPE(b, limit_type) || (how != Py_EQ && how != Py_NE))
        Py_RETURN_NOTIMPLEMENTED;
    bool same = !strcmp(weir_limit_text(((LimitObject *)a)->limit),
                        weir_limit_text(((LimitObject *)b)->limit));
    return PyBool_FromLong(same == (how == Py_EQ));
}

static PyObject *limit_kinds(PyObject *op, void *closure)
{
    const weir_limit *limit = ((LimitObject *)op)->limit;
    Py_ssize_t count = limit_len(op);
    PyObject *kinds = PyTuple_New(count);
    (void)closure;
    for (Py_ssize_t i = 0; kinds && i < count; i++) {
        PyObject *kind = PyUnicode_FromString(weir_limit_kind(limit, (size_t)i));
        if (!kind || PyTuple_SetItem(kinds, i, kind))
            Py_CLEAR(kinds);
    }
    return kinds;
}

/* A tuple of one number per limit; `closure` is the function that tells it. */
static PyObject *limit_numbers(PyObject *op, void *closure)
{
    int64_t (*number)(const weir_limit *, size_t) =
        *(int64_t(**)(const weir_limit *, size_t))closure;
    Py_ssize_t count = limit_len(op);
    PyObject *numbers = PyTuple_New(count);
    for (Py_ssize_t i = 0; numbers && i < count; i++) {
        PyObject *one = PyLong_FromLongLong(number(((LimitObject *)op)->limit, (size_t)i));
        if (!one || PyTuple_SetItem(numbers, i, one))
            Py_CLEAR(numbers);
    }
    return numbers;
}

static PyObject *limit_lease(PyObject *op, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong(((LimitObject *)op)->lease_us);
}

static PyObject *limit_reduce(PyObject *op, PyObject *nothing)
{
    (void)nothing;
    return Py_BuildValue("O(s)", limit_type, weir_limit_text(((LimitObject *)op)->limit));
}

static int64_t (*const amount)(const weir_limit *, size_t) = weir_limit_amount;
static int64_t (*const period)(const weir_limit *, size_t) = weir_limit_period_us;
static int64_t (*const burst)(const weir_limit *, size_t) = weir_limit_burst;
static int64_t (*const own_cost)(const weir_limit *, size_t) = weir_limit_cost;

static PyGetSetDef limit_properties[] = {
    {"text", limit_text, NULL, "The canonical text.", NULL},
    {"kinds", limit_kinds, NULL, "The name of each limit: ('token-bucket', …).", NULL},
    {"amounts", limit_numbers, NULL, "How much each admits in a period.", (void *)&amount},
    {"periods_us", limit_numbers, NULL, "The period of each, in microseconds.", (void *)&period},
    {"bursts", limit_numbers, NULL, "The burst of each; 0: it has none.", (void *)&burst},
    {"costs", limit_numbers, NULL, "The cost of its own of each; 0: it has none.",
     (void *)&own_cost},
    {"lease_us", limit_lease, NULL, "The lease of its concurrent limit; 0: it has none.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef limit_methods[] = {
    {"__reduce__", limit_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static const char limit_doc[] =
    "Limit(text)\n--\n\nOne or several limits, 'token-bucket 10/s burst 20, fixed-window 1000/d', "
    "read once. Verbs also take the text itself, and remember what they have read.";

static PyType_Slot limit_slots[] = {
    {Py_tp_new, limit_new},
    {Py_tp_dealloc, limit_dealloc},
    {Py_tp_str, limit_str},
    {Py_tp_repr, limit_repr},
    {Py_tp_hash, limit_hash},
    {Py_tp_richcompare, limit_compare},
    {Py_sq_length, limit_len},
    {Py_tp_getset, limit_properties},
    {Py_tp_methods, limit_methods},
    {Py_tp_doc, (void *)limit_doc},
    {0, NULL},
};

PyType_Spec limit_spec = {"weir.Limit", sizeof(LimitObject), 0, Py_TPFLAGS_DEFAULT, limit_slots};
