// SPDX-License-Identifier: Apache-2.0
//
// Shared by the programs that test the simulated driver: its functions by dlopen and dlsym, and a
// check that prints its position if it fails.
#ifndef SIMCUDA_TESTLIB_H
#define SIMCUDA_TESTLIB_H

#include "cuda_abi.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *driver_handle(void) {
    static void *h;
    if (!h && !(h = dlopen("libcuda.so.1", RTLD_NOW))) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return h;
}

static inline void *driver_symbol(const char *name) {
    void *p = dlsym(driver_handle(), name);
    if (!p) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    return p;
}

// CU(cuMemFree_v2, CUdeviceptr)(p): a call through the exported name.
#define CU(name, ...) ((CUresult(*)(__VA_ARGS__))driver_symbol(#name))

#define CHECK(expression, expected)                                                                \
    do {                                                                                           \
        long long check_got = (long long)(expression), check_want = (long long)(expected);         \
        if (check_got != check_want) {                                                             \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #expression,      \
                    check_got, check_want);                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// The functions that almost every program here needs.
#define cuInit CU(cuInit, unsigned)
#define cuCtxCreate CU(cuCtxCreate_v2, CUcontext *, unsigned, CUdevice)
#define cuCtxDestroy CU(cuCtxDestroy_v2, CUcontext)
#define cuCtxPop CU(cuCtxPopCurrent_v2, CUcontext *)
#define cuCtxPush CU(cuCtxPushCurrent_v2, CUcontext)
#define cuCtxGetCurrent CU(cuCtxGetCurrent, CUcontext *)
#define cuCtxSetCurrent CU(cuCtxSetCurrent, CUcontext)
#define cuCtxSynchronize CU(cuCtxSynchronize, void)
#define cuMemAlloc CU(cuMemAlloc_v2, CUdeviceptr *, size_t)
#define cuMemFree CU(cuMemFree_v2, CUdeviceptr)
#define cuMemGetInfo CU(cuMemGetInfo_v2, size_t *, size_t *)
#define cuMemAllocAsync CU(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)
#define cuMemFreeAsync CU(cuMemFreeAsync, CUdeviceptr, CUstream)
#define cuMemcpyHtoD CU(cuMemcpyHtoD_v2, CUdeviceptr, const void *, size_t)
#define cuMemcpyDtoH CU(cuMemcpyDtoH_v2, void *, CUdeviceptr, size_t)
#define cuStreamCreate CU(cuStreamCreate, CUstream *, unsigned)
#define cuStreamDestroy CU(cuStreamDestroy_v2, CUstream)
#define cuStreamSynchronize CU(cuStreamSynchronize, CUstream)
#define cuStreamQuery CU(cuStreamQuery, CUstream)
#define cuLaunchHostFunc CU(cuLaunchHostFunc, CUstream, void (*)(void *), void *)
#define cuEventCreate CU(cuEventCreate, CUevent *, unsigned)
#define cuEventRecord CU(cuEventRecord, CUevent, CUstream)
#define cuEventQuery CU(cuEventQuery, CUevent)
#define cuEventSynchronize CU(cuEventSynchronize, CUevent)

static inline CUcontext open_device(CUdevice dev) {
    CUcontext ctx;
    CHECK(cuInit(0), 0);
    CHECK(cuCtxCreate(&ctx, 0, dev), 0);
    return ctx;
}

static inline size_t free_bytes(void) {
    size_t f, t;
    CHECK(cuMemGetInfo(&f, &t), 0);
    return f;
}

// A gate on a stream: operations behind it wait until the program opens it.
struct gate {
    int fd[2];
};

static inline void gate_wait(void *arg) {
    char c;
    struct gate *g = arg;
    while (read(g->fd[0], &c, 1) < 0)
        ;
}

static inline void gate_put(struct gate *g, CUstream s) {
    CHECK(pipe(g->fd), 0);
    CHECK(cuLaunchHostFunc(s, gate_wait, g), 0);
}

static inline void gate_open(struct gate *g) {
    CHECK(write(g->fd[1], "", 1), 1);
}

#endif
