/* A C extension that does nothing: what Python itself takes for a call with two arguments. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030a0000
#include <Python.h>

static PyObject *empty_call(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    (void)args;
    (void)count;
    Py_RETURN_NONE;
}

static PyMethodDef empty_methods[] = {
    {"call", (PyCFunction)(void (*)(void))empty_call, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef empty_module = {PyModuleDef_HEAD_INIT, .m_name = "empty_call",
                                          .m_size = -1, .m_methods = empty_methods};

PyMODINIT_FUNC PyInit_empty_call(void)
{
    return PyModule_Create(&empty_module);
}
