/* The module weir._weir: makes the types once per process, in the main interpreter only. */
#include "binding.h"

PyObject *timedelta_type;

/* For what only the library makes. */
PyObject *no_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    (void)args;
    (void)keywords;
    PyErr_Format(PyExc_TypeError, "%R cannot be made by calling it", type);
    return NULL;
}

static int type_init(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **type)
{
    if (!*type)
        *type = (PyTypeObject *)PyType_FromSpec(spec);
    Py_XINCREF(*type);
    if (!*type || PyModule_AddObject(module, name, (PyObject *)*type)) {
        Py_XDECREF(*type);
        return -1;
    }
    return 0;
}

/* The one spelling of a path. */
static PyObject *module_path(PyObject *module, PyObject *given)
{
    char *data, *room;
    Py_ssize_t len;
    size_t found;
    weir_error err;
    (void)module;
    if (PyBytes_AsStringAndSize(given, &data, &len))
        return NULL;
    room = PyMem_Malloc((size_t)len + 1);
    if (!room)
        return PyErr_NoMemory();
    int code = weir_path(data, (size_t)len, room, (size_t)len + 1, &found, &err);
    PyObject *path = code ? raise_error(&err) : PyBytes_FromStringAndSize(room, (Py_ssize_t)found);
    PyMem_Free(room);
    return path;
}

static PyMethodDef module_functions[] = {
    {"path", module_path, METH_O,
     "path($module, path, /)\n--\n\nThe one spelling of a request's path, as bytes."},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "weir works in the main interpreter only, not in subinterpreters: use "
                        "threads or processes, which can share a store");
        return -1;
    }
    if (!timedelta_type) {
        PyObject *datetime = PyImport_ImportModule("datetime");
        timedelta_type = datetime ? PyObject_GetAttrString(datetime, "timedelta") : NULL;
        Py_XDECREF(datetime);
    }
    if (!timedelta_type || errors_init(module) ||
        type_init(module, "Limit", &limit_spec, &limit_type) ||
        type_init(module, "Decision", &decision_spec, &decision_type) ||
        type_init(module, "Store", &store_spec, &store_type) ||
        type_init(module, "Wakeup", &wakeup_spec, &wakeup_type))
        return -1;
    return PyModule_AddStringConstant(module, "version", weir_version()) ||
           PyModule_AddIntConstant(module, "error_count", weir_error_count());
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "weir._weir",
    .m_doc = "The library, for the package weir.",
    .m_methods = module_functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__weir(void);
PyMODINIT_FUNC PyInit__weir(void)
{
    return PyModuleDef_Init(&module_def);
}
