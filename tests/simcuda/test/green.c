// SPDX-License-Identifier: Apache-2.0
//
// Green contexts, attached contexts, the runtime's way to the primary one, and memory that leaves
// the process.

#include "testlib.h"

typedef void *green;

static void greens(void) {
    unsigned char all[144], two[2][144], rest[144];
    unsigned groups = 2;
    void *part = NULL;
    green g = NULL, h = NULL;
    CUcontext c = 0, primary = 0;
    CUstream s = 0;
    CUdeviceptr p = 0;
    CHECK(CU(cuDeviceGetDevResource, CUdevice, void *, int)(0, all, 1), 0);
    CHECK(CU(cuDeviceGetDevResource, CUdevice, void *, int)(0, all, 7), 1);
    CHECK(CU(cuDevSmResourceSplitByCount, void *, unsigned *, void *, void *, unsigned,
             unsigned)(two, &groups, all, rest, 0, 8),
          0);
    CHECK(groups, 2);
    CHECK(CU(cuDevResourceGenerateDesc, void **, void *, unsigned)(&part, two, 1), 0);
    CHECK(CU(cuGreenCtxCreate, green *, void *, CUdevice, unsigned)(&g, part, 0, 0), 1);
    CHECK(CU(cuGreenCtxCreate, green *, void *, CUdevice, unsigned)(&g, part, 0, 1), 0);
    CHECK(CU(cuGreenCtxCreate, green *, void *, CUdevice, unsigned)(&h, part, 0, 1), 0);
    CHECK(CU(cuCtxFromGreenCtx, CUcontext *, green)(&c, g), 0);
    CHECK(cuCtxSetCurrent(c), 0);
    CHECK(cuMemAlloc(&p, 1000), 0);
    CHECK(CU(cuGreenCtxStreamCreate, CUstream *, green, unsigned, int)(&s, g, 0, 0), 1);
    CHECK(CU(cuGreenCtxStreamCreate, CUstream *, green, unsigned, int)(&s, g, 1, 0), 0);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(CU(cuGreenCtxDestroy, green)(g), 0);
    CHECK(CU(cuGreenCtxDestroy, green)(g), 201);
    CHECK(cuStreamSynchronize(s), 709); // the converted context is gone as well
    CHECK(CU(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&primary, 0), 0);
    CHECK(cuCtxSetCurrent(primary), 0);
    CHECK(cuStreamSynchronize(s), 917);
    CHECK(cuStreamDestroy(s), 0);
    CHECK(CU(cuGreenCtxDestroy, green)(h), 0);
    CHECK(cuMemFree(p), 0); // it lay in the primary one
    CHECK(CU(cuDevicePrimaryCtxRelease_v2, CUdevice)(0), 0);
    CHECK(cuMemFree(p), 709);
    CHECK(cuCtxPop(&c), 0);
}

static void attached(void) {
    CUcontext c = open_device(0), again = 0;
    CHECK(CU(cuCtxAttach, CUcontext *, unsigned)(&again, 1), 1);
    CHECK(CU(cuCtxAttach, CUcontext *, unsigned)(&again, 0), 0);
    CHECK(again == c, 1);
    CHECK(CU(cuCtxDetach, CUcontext)(c), 0);
    CHECK(CU(cuCtxDetach, CUcontext)(c), 0);
    CHECK(CU(cuCtxDetach, CUcontext)(c), 201);
}

static void runtime(void) {
    static const unsigned char id[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                         0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
    const void *table = NULL;
    CUcontext a = 0, b = 0;
    unsigned flags;
    int active;
    CHECK(CU(cuGetExportTable, const void **, const void *)(&table, id), 0);
    void *const *slot = table;
    CHECK((uintptr_t)slot[0], 88);
    CUresult (*primary)(CUcontext *, CUdevice) = (CUresult(*)(CUcontext *, CUdevice))slot[2];
    CHECK(primary(&a, 0), 0);
    CHECK(primary(&b, 0), 0);
    CHECK(a == b, 1);
    CHECK(primary(&b, 99), 101);
    CHECK(CU(cuDevicePrimaryCtxReset_v2, CUdevice)(0), 0);
    CHECK(CU(cuDevicePrimaryCtxGetState, CUdevice, unsigned *, int *)(0, &flags, &active), 0);
    CHECK(active, 0);
}

static void shared(void) {
    struct {
        int type, handles, location[2];
        void *more[2];
    } want = {1, 1, {1, 0}, {NULL, NULL}};
    unsigned long long a = 0, b = 0;
    struct handle {
        unsigned char bytes[64];
    } h;
    CUdeviceptr p = 0;
    int fd = -1;
    open_device(0);
    CHECK(CU(cuMemCreate, unsigned long long *, size_t, void *, unsigned long long)(&a, 2 << 20,
                                                                                    &want, 0),
          0);
    CHECK(CU(cuMemExportToShareableHandle, int *, unsigned long long, int,
             unsigned long long)(&fd, a, 1, 0),
          0);
    CHECK(CU(cuMemImportFromShareableHandle, unsigned long long *, intptr_t, int)(&b, 0, 1), 1);
    CHECK(CU(cuMemImportFromShareableHandle, unsigned long long *, intptr_t, int)(&b, fd, 1), 0);
    CHECK(CU(cuMemRelease, unsigned long long)(b), 0);
    CHECK(CU(cuMemRelease, unsigned long long)(a), 0);
    CHECK(close(fd), 0);
    CHECK(cuMemAlloc(&p, 1000), 0);
    CHECK(CU(cuIpcGetMemHandle, struct handle *, CUdeviceptr)(&h, p), 0);
    CHECK(CU(cuIpcOpenMemHandle_v2, CUdeviceptr *, struct handle, unsigned)(&p, h, 1), 201);
    memset(&h, 0, sizeof h);
    CHECK(CU(cuIpcOpenMemHandle_v2, CUdeviceptr *, struct handle, unsigned)(&p, h, 1), 1);
    CHECK(CU(cuIpcCloseMemHandle, CUdeviceptr)(p), 1);
}

int main(void) {
    CHECK(cuInit(0), 0);
    greens();
    attached();
    runtime();
    shared();
    return 0;
}
