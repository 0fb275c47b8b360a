/* Python's objects as what the library takes: keys, limits, costs, times. */
#include "binding.h"

#include <math.h>
#include <stdio.h>

#define CACHE_MOST 1024      /* limits that a store remembers by their text */
#define CACHE_TEXT_MOST 4096 /* bytes of such a text: a longer one is read each time */

static int find_name(const char *const *names, int count, PyObject *keyword)
{
    for (int i = 0; i < count; i++) {
        if (PyUnicode_CompareWithASCIIString(keyword, names[i]) == 0)
            return i;
    }
    return -1;
}

int read_arguments(const char *function, const char *const *names, int count, int required,
                   int positional, PyObject *const *args, Py_ssize_t given, PyObject *keywords,
                   PyObject **ret)
{
    Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
    if (given > positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional arguments, %zd were given",
                     function, positional, given);
        return -1;
    }
    for (int i = 0; i < count; i++)
        ret[i] = i < given ? args[i] : NULL;
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *keyword = PyTuple_GetItem(keywords, k);
        int i = find_name(names, count, keyword);
        if (i < 0 || ret[i]) {
            PyErr_Format(PyExc_TypeError,
                         i < 0 ? "%s() has no argument '%U'" : "%s() got argument '%U' twice",
                         function, keyword);
            return -1;
        }
        ret[i] = args[given + k];
    }
    for (int i = 0; i < required; i++) {
        if (!ret[i]) {
            PyErr_Format(PyExc_TypeError, "%s() needs argument '%s'", function, names[i]);
            return -1;
        }
    }
    return 0;
}

static const char *type_name(PyObject *object, char room[64])
{
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    snprintf(room, 64, "%s", text ? text : "object");
    PyErr_Clear();
    Py_XDECREF(name);
    return room;
}

static int wrong_type(const char *what, const char *expected, PyObject *object)
{
    char room[64];
    PyErr_Format(PyExc_TypeError, "%s must be %s, not %s", what, expected, type_name(object, room));
    return -1;
}

int read_key(PyObject *object, const char **ret, size_t *ret_len)
{
    Py_ssize_t len;
    if (PyUnicode_Check(object)) {
        *ret = PyUnicode_AsUTF8AndSize(object, &len);
        if (!*ret)
            return -1; /* a surrogate: Python's codec says where */
    } else if (PyBytes_Check(object)) {
        char *bytes;
        if (PyBytes_AsStringAndSize(object, &bytes, &len))
            return -1;
        *ret = bytes;
    } else {
        return wrong_type("the key", "str or bytes", object);
    }
    *ret_len = (size_t)len;
    return 0;
}

/* An int of an object that has __index__: it may run any code. */
static PyObject *as_int(PyObject *object, const char *what)
{
    if (PyLong_Check(object)) {
        Py_INCREF(object);
        return object;
    }
    if (!PyIndex_Check(object)) {
        wrong_type(what, "an int", object);
        return NULL;
    }
    return PyNumber_Index(object);
}

static int out_of_bounds(const char *what)
{
    char message[160];
    PyErr_Clear();
    snprintf(message, sizeof message, "invalid %s: it has more than 64 bits", what);
    raise_code(WEIR_EINVAL, message);
    return -1;
}

int read_int(PyObject *object, const char *what, int64_t *ret)
{
    PyObject *number = as_int(object, what);
    if (!number)
        return -1;
    long long value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    if (UNLIKELY(value == -1) && PyErr_Occurred())
        return PyErr_ExceptionMatches(PyExc_OverflowError) ? out_of_bounds(what) : -1;
    *ret = value;
    return 0;
}

int read_count(PyObject *object, const char *what, int64_t *ret)
{
    if (read_int(object, what, ret))
        return -1;
    if (*ret < 0) {
        char message[160];
        snprintf(message, sizeof message, "invalid %s %lld: expected 0 to %lld", what,
                 (long long)*ret, (long long)WEIR_COST_MAX);
        raise_code(WEIR_EINVAL, message);
        return -1;
    }
    return 0;
}

int read_flag(PyObject *object, int otherwise)
{
    return object ? PyObject_IsTrue(object) : otherwise;
}

/* ---- times ---- */

static int time_out_of_bounds(const char *what)
{
    char message[160];
    snprintf(message, sizeof message,
             "invalid %s: expected 0 to 31622400 seconds (366 days), math.inf or None", what);
    raise_code(WEIR_EINVAL, message);
    return -1;
}

static int read_part(PyObject *delta, const char *name, int64_t *ret)
{
    PyObject *part = PyObject_GetAttrString(delta, name);
    int failed = part ? read_int(part, name, ret) : -1;
    Py_XDECREF(part);
    return failed;
}

static int read_timedelta(PyObject *delta, const char *what, int64_t *ret)
{
    int64_t days, seconds, us;
    if (read_part(delta, "days", &days) || read_part(delta, "seconds", &seconds) ||
        read_part(delta, "microseconds", &us))
        return -1;
    if (days < 0 || days > 400 || seconds < 0 || seconds > 86400 || us < 0 || us > 1000000)
        return time_out_of_bounds(what);
    *ret = (days * 86400 + seconds) * 1000000 + us;
    return *ret > WEIR_DURATION_MAX ? time_out_of_bounds(what) : 0;
}

int read_time(PyObject *object, const char *what, int64_t none, int64_t *ret)
{
    if (!object || object == Py_None) {
        *ret = none;
        return 0;
    }
    if (PyFloat_Check(object)) {
        double seconds = PyFloat_AsDouble(object);
        if (isinf(seconds) && seconds > 0) {
            *ret = WEIR_WAIT_ANY;
            return 0;
        }
        if (!(seconds >= 0 && seconds <= WEIR_DURATION_MAX / 1e6)) /* also not a number */
            return time_out_of_bounds(what);
        *ret = (int64_t)llround(seconds * 1e6);
        return 0;
    }
    int is_delta = PyObject_IsInstance(object, timedelta_type);
    if (is_delta)
        return is_delta < 0 ? -1 : read_timedelta(object, what, ret);
    if (!PyIndex_Check(object))
        return wrong_type(what, "seconds, a timedelta or None", object);
    int64_t seconds;
    if (read_int(object, what, &seconds))
        return -1;
    if (seconds < 0 || seconds > WEIR_DURATION_MAX / 1000000)
        return time_out_of_bounds(what);
    *ret = seconds * 1000000;
    return 0;
}

/* ---- limits ---- */

/* Makes room for one more: the oldest goes. */
static int cache_trim(PyObject *cache)
{
    Py_ssize_t at = 0;
    PyObject *oldest, *limit;
    if (PyDict_Size(cache) < CACHE_MOST || !PyDict_Next(cache, &at, &oldest, &limit))
        return 0;
    Py_INCREF(oldest);
    int failed = PyDict_DelItem(cache, oldest);
    Py_DECREF(oldest);
    return failed;
}

static LimitObject *cache_add(PyObject *cache, PyObject *text)
{
    Py_ssize_t len;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &len);
    LimitObject *limit = utf8 ? limit_make(utf8, (size_t)len) : NULL;
    if (limit && len <= CACHE_TEXT_MOST &&
        (cache_trim(cache) || PyDict_SetItem(cache, text, (PyObject *)limit)))
        Py_CLEAR(limit);
    return limit;
}

LimitObject *read_limit(StoreObject *store, PyObject *object)
{
    if (Py_IS_TYPE(object, limit_type)) {
        Py_INCREF(object);
        return (LimitObject *)object;
    }
    if (!PyUnicode_Check(object)) {
        wrong_type("the limit", "str or Limit", object);
        return NULL;
    }
    /* Subclasses of str may compare as they like: the cache holds plain text only. */
    PyObject *text = PyUnicode_FromObject(object);
    PyObject *known = text ? PyDict_GetItemWithError(store->cache, text) : NULL;
    LimitObject *limit = NULL;
    if (known) {
        Py_INCREF(known);
        limit = (LimitObject *)known;
    } else if (text && !PyErr_Occurred()) {
        limit = cache_add(store->cache, text);
    }
    Py_XDECREF(text);
    return limit;
}
