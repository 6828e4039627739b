// SPDX-License-Identifier: Apache-2.0
// A preloaded library of another project that comes first. It defines one of OpenCL's functions,
// and finds the loader's function with libc's own dlsym, past every wrapper of dlsym. It prints on
// stderr how often it was called.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

CL_API_ENTRY cl_mem CL_API_CALL clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size,
                                               void *host, cl_int *status) {
    static __typeof__(&clCreateBuffer) real;
    static int calls;
    if (!real) {
        void *(*libcs)(void *, const char *) = NULL;
        void *libc = dlopen("libc.so.6", RTLD_LAZY);
        void *opencl = dlopen("libOpenCL.so.1", RTLD_LAZY);
        *(void **)&libcs = libc ? dlsym(libc, "dlsym") : NULL;
        *(void **)&real = libcs && opencl ? libcs(opencl, "clCreateBuffer") : NULL;
    }
    if (!real)
        abort();
    fprintf(stderr, "before %d\n", ++calls);
    return real(context, flags, size, host, status);
}
