// SPDX-License-Identifier: Apache-2.0
// cudaext: a Python extension that is linked against libcuda, as many are. Python loads it with
// RTLD_LOCAL, so that no look-up by RTLD_NEXT or RTLD_DEFAULT finds the driver that it brought.
//
//   cudaext.alloc(bytes)   cuMemAlloc_v2 in a context of its own; returns the driver's code
#define PY_SSIZE_T_CLEAN
#include <Python.h>

int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuMemAlloc_v2(unsigned long long *ptr, size_t bytes);

static PyObject *ext_alloc(PyObject *self, PyObject *args) {
    static void *context;
    Py_ssize_t bytes;
    int device = 0, code = 0;
    unsigned long long ptr;
    (void)self;
    if (!PyArg_ParseTuple(args, "n", &bytes))
        return NULL;
    if (!context && ((code = cuInit(0)) != 0 || (code = cuDeviceGet(&device, 0)) != 0))
        return PyLong_FromLong(code);
    if (!context && (code = cuCtxCreate_v2(&context, 0, device)) != 0)
        return PyLong_FromLong(code);
    return PyLong_FromLong(cuMemAlloc_v2(&ptr, (size_t)bytes));
}

static PyMethodDef methods[] = {{"alloc", ext_alloc, METH_VARARGS, "cuMemAlloc_v2"},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "cudaext", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_cudaext(void) {
    return PyModule_Create(&module);
}
