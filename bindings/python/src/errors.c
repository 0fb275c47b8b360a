/* One exception for each error code, made from the list in weir.h; all of them are weir.Error. */
#include "binding.h"

#include <stdio.h>

#define ONE(name, number, text) +1
enum { CODES = 0 WEIR_ERRORS(ONE) };
#undef ONE

static PyObject *error_base;
static PyObject *error_types[CODES + 1]; /* by the code without its sign */

/* What an exception also is, for programs that catch by what Python has. */
static PyObject *also(int code)
{
    switch (code) {
    case WEIR_EINVAL:
    case WEIR_ESYNTAX:
    case WEIR_EURL:
    case WEIR_ERECEIPT:
        return PyExc_ValueError;
    case WEIR_ENOMEM:
        return PyExc_MemoryError;
    case WEIR_ESYSTEM:
        return PyExc_OSError;
    case WEIR_EUNREACHABLE:
        return PyExc_ConnectionError;
    }
    return NULL;
}

static PyObject *error_type_make(int code, const char *name, const char *text)
{
    char full[64];
    snprintf(full, sizeof full, "weir.%s", name);
    PyObject *other = also(code);
    PyObject *bases = other ? PyTuple_Pack(2, error_base, other) : PyTuple_Pack(1, error_base);
    PyObject *members = Py_BuildValue("{s:i,s:s}", "code", code, "name", name);
    PyObject *type =
        bases && members ? PyErr_NewExceptionWithDoc(full, text, bases, members) : NULL;
    Py_XDECREF(bases);
    Py_XDECREF(members);
    return type;
}

static int error_add(PyObject *module, const char *name, PyObject *type)
{
    Py_XINCREF(type);
    if (!type || PyModule_AddObject(module, name, type)) {
        Py_XDECREF(type);
        return -1;
    }
    return 0;
}

int errors_init(PyObject *module)
{
    if (!error_base) {
        PyObject *members = Py_BuildValue("{s:i,s:s,s:i}", "code", 0, "name", "", "column", 0);
        error_base = members ? PyErr_NewExceptionWithDoc(
                                   "weir.Error",
                                   "A call failed. `code` and `name` say how; `column` is the "
                                   "place in a limit's text or a store's address, from 1, or 0.",
                                   NULL, members)
                             : NULL;
        Py_XDECREF(members);
    }
    if (!error_base || error_add(module, "Error", error_base))
        return -1;
#define ADD(name, number, text)                                                                    \
    if (!error_types[number])                                                                      \
        error_types[number] = error_type_make(WEIR_##name, #name, text);                           \
    if (error_add(module, #name, error_types[number]))                                             \
        return -1;
    WEIR_ERRORS(ADD)
#undef ADD
    return 0;
}

static PyObject *type_of(int code)
{
    return code < 0 && code >= -CODES && error_types[-code] ? error_types[-code] : error_base;
}

static PyObject *error_make(int code, int column, const char *message)
{
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    PyObject *error = text ? PyObject_CallFunctionObjArgs(type_of(code), text, NULL) : NULL;
    Py_XDECREF(text);
    if (error && column) {
        PyObject *place = PyLong_FromLong(column);
        if (!place || PyObject_SetAttrString(error, "column", place))
            Py_CLEAR(error);
        Py_XDECREF(place);
    }
    return error;
}

static PyObject *raise(int code, int column, const char *message)
{
    PyObject *error = error_make(code, column, message);
    if (error)
        PyErr_SetObject(type_of(code), error);
    Py_XDECREF(error);
    return NULL;
}

PyObject *raise_error(const weir_error *err)
{
    return raise(err->code, err->column, err->message);
}

PyObject *raise_code(int code, const char *message)
{
    return raise(code, 0, message ? message : weir_strerror(code));
}

PyObject *error_of(int code)
{
    return error_make(code, 0, weir_strerror(code));
}
