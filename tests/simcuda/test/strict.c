// SPDX-License-Identifier: Apache-2.0
//
// Checks that each mistake returns the real driver's code. Device 0 has 8 GiB, and a context costs
// 64 MiB.

#include "testlib.h"

#include <limits.h>
#include <pthread.h>

#define MIB (1ull << 20)

static void before_init(void) {
    CUdeviceptr p;
    int n;
    CHECK(cuMemAlloc(&p, 1), 3);
    CHECK(CU(cuDeviceGetCount, int *)(&n), 3);
    CHECK(CU(cuLaunchKernel, void)(), 3);
    CHECK(CU(cuDriverGetVersion, int *)(&n), 0);
    CHECK(cuInit(1), 1);
}

static int vdpau(uint32_t device, uint32_t function, void **pointer) {
    *pointer = (void *)vdpau;
    return device == 7 && function ? 0 : 3;
}

// Checks contexts for graphics APIs, with the same mistakes.
static void graphics(void) {
    typedef CUresult make_gl(CUcontext *, unsigned, CUdevice);
    typedef CUresult make_vdpau(CUcontext *, unsigned, CUdevice, uint32_t, const void *);
    CUcontext c;
    for (int version = 1; version <= 2; version++) {
        make_gl *gl = (make_gl *)driver_symbol(version == 1 ? "cuGLCtxCreate" : "cuGLCtxCreate_v2");
        make_vdpau *vd =
            (make_vdpau *)driver_symbol(version == 1 ? "cuVDPAUCtxCreate" : "cuVDPAUCtxCreate_v2");
        CHECK(gl(NULL, 0, 0), 1);
        CHECK(gl(&c, 0x40, 0), 1);
        CHECK(gl(&c, 0, 7), 101);
        CHECK(vd(NULL, 0, 0, 7, vdpau), 1);
        CHECK(vd(&c, 0x40, 0, 7, vdpau), 1);
        CHECK(vd(&c, 0, 7, 7, vdpau), 101);
        CHECK(vd(&c, 0, 0, 8, vdpau), 1); // not a device of that VDPAU
        CHECK(vd(&c, 0, 0, 7, NULL), 1);
        CHECK(gl(&c, 0, 0), 0);
        CHECK(cuCtxDestroy(c), 0);
        CHECK(vd(&c, 0, 0, 7, vdpau), 0);
        CHECK(cuCtxDestroy(c), 0);
    }
}

static void without_context(void) {
    CUdeviceptr p;
    CUcontext c = 1;
    CUstream s;
    CHECK(cuMemAlloc(&p, 1), 201);
    CHECK(cuStreamCreate(&s, 0), 201);
    CHECK(cuMemFree(4096), 201);
    CHECK(cuCtxSynchronize(), 201);
    CHECK(cuCtxPop(&c), 201);
    CHECK(cuCtxGetCurrent(&c), 0);
    CHECK(c, 0);
    CHECK(CU(cuCtxCreate_v2, CUcontext *, unsigned, CUdevice)(&c, 0, 7), 101);
    CHECK(CU(cuCtxCreate_v2, CUcontext *, unsigned, CUdevice)(NULL, 0, 0), 1);
    graphics();
}

static void memory(void) {
    CUdeviceptr p, base;
    size_t n, pitch;
    size_t before = free_bytes();
    CHECK(cuMemAlloc(NULL, 1), 1);
    CHECK(cuMemAlloc(&p, 0), 1);
    CHECK(cuMemAlloc(&p, before + 1), 2);
    CHECK(cuMemAlloc(&p, SIZE_MAX), 2);
    CHECK(cuMemAlloc(&p, before), 0);
    CHECK(free_bytes(), 0);
    CUdeviceptr q;
    CHECK(cuMemAlloc(&q, 1), 2);
    CHECK(cuMemFree(p + 512), 1);
    CHECK(cuMemFree(p), 0);
    CHECK(cuMemFree(p), 1);
    CHECK(cuMemFree(12345), 1);
    CHECK(cuMemFree(0), 0);
    CHECK(free_bytes(), before);
    CHECK(CU(cuMemAllocPitch_v2, CUdeviceptr *, size_t *, size_t, size_t, unsigned)(&p, &pitch, 513,
                                                                                    3, 4),
          0);
    CHECK(pitch, 1024);
    CHECK(before - free_bytes(), 3072);
    CHECK(CU(cuMemGetAddressRange_v2, CUdeviceptr *, size_t *, CUdeviceptr)(&base, &n, p + 3071),
          0);
    CHECK(base == p && n == 3072, 1);
    CHECK(CU(cuMemGetAddressRange_v2, CUdeviceptr *, size_t *, CUdeviceptr)(&base, &n, p + 3072),
          500);
    CHECK(cuMemFree(p), 0);
    CHECK(CU(cuMemAllocPitch_v2, CUdeviceptr *, size_t *, size_t, size_t, unsigned)(&p, &pitch, 1,
                                                                                    1, 3),
          1);
    CHECK(CU(cuMemAllocManaged, CUdeviceptr *, size_t, unsigned)(&p, MIB, 1), 0);
    CHECK(before - free_bytes(), MIB);
    memset((void *)(uintptr_t)p, 7, MIB); // the host reaches managed memory
    CHECK(CU(cuMemFreeHost, void *)((void *)(uintptr_t)p), 1);
    CHECK(cuMemFree(p), 0);
    CHECK(CU(cuMemAllocManaged, CUdeviceptr *, size_t, unsigned)(&p, MIB, 0), 1);
    void *h;
    CHECK(CU(cuMemHostAlloc, void **, size_t, unsigned)(&h, MIB, 0), 0);
    CHECK(free_bytes(), before);
    CHECK(cuMemFree((CUdeviceptr)(uintptr_t)h), 1);
    CHECK(CU(cuMemFreeHost, void *)(h), 0);
    CHECK(CU(cuMemFreeHost, void *)(h), 1);
}

static void handles(void) {
    CUstream s, bogus = 0x1234560;
    CUevent e;
    CHECK(cuStreamSynchronize(bogus), 400);
    CHECK(cuStreamDestroy(bogus), 400);
    CHECK(cuStreamDestroy(0), 400);
    CHECK(cuStreamQuery((CUstream)-1), 400);
    CHECK(cuStreamCreate(NULL, 0), 1);
    CHECK(cuStreamCreate(&s, 2), 1);
    CHECK(cuStreamCreate(&s, 1), 0);
    CHECK(cuEventRecord((CUevent)s, s), 400); // a handle of the wrong kind
    CHECK(cuEventCreate(&e, 0), 0);
    CHECK(cuEventRecord(e, s), 0);
    CHECK(cuEventSynchronize(e), 0);
    CHECK(cuStreamDestroy(s), 0);
    CHECK(cuStreamDestroy(s), 400);
    CHECK(cuEventRecord(e, s), 400);
    CHECK(cuEventQuery(e), 0);
    CHECK(CU(cuEventDestroy_v2, CUevent)(e), 0);
    CHECK(CU(cuEventDestroy_v2, CUevent)(e), 400);
    CHECK(cuEventQuery(e), 400);
}

static void unsupported(void) {
    CHECK(CU(cuLaunchCooperativeKernel, void)(), 801);
    CHECK(CU(cuIpcGetEventHandle, void)(), 801);
}

static void *other_thread(void *arg) {
    CUcontext c = 1, ctx = *(CUcontext *)arg;
    CUdeviceptr p;
    CHECK(cuCtxGetCurrent(&c), 0);
    CHECK(c, 0); // stacks are per thread
    CHECK(cuMemAlloc(&p, 1), 201);
    CHECK(cuCtxPush(ctx), 0);
    CHECK(cuMemAlloc(&p, 1), 0);
    return NULL;
}

static void contexts(CUcontext first) {
    size_t before = free_bytes();
    CUcontext second, c;
    pthread_t t;
    CHECK(cuCtxCreate(&second, 0, 0), 0);
    CHECK(before - free_bytes(), 64 * MIB);
    CUdeviceptr p;
    CUstream s;
    CHECK(cuMemAlloc(&p, MIB), 0);
    CHECK(cuStreamCreate(&s, 0), 0);
    CHECK(pthread_create(&t, NULL, other_thread, &second), 0);
    CHECK(pthread_join(t, NULL), 0);
    CHECK(cuCtxDestroy(second), 0); // and everything that lived in it
    CHECK(cuCtxGetCurrent(&c), 0);
    CHECK(c == first, 1);
    CHECK(free_bytes(), before);
    CHECK(cuMemFree(p), 1);
    CHECK(cuStreamDestroy(s), 400);
    CHECK(cuCtxDestroy(second), 201);
    CHECK(cuCtxPush(second), 201);
    CHECK(cuCtxSetCurrent(second), 201);
}

static void *destroy_there(void *arg) {
    CHECK(cuCtxDestroy(*(CUcontext *)arg), 0);
    return NULL;
}

static void destroyed_elsewhere(void) {
    CUcontext ctx, c;
    CUdeviceptr p;
    pthread_t t;
    CHECK(cuCtxCreate(&ctx, 0, 0), 0);
    CHECK(pthread_create(&t, NULL, destroy_there, &ctx), 0);
    CHECK(pthread_join(t, NULL), 0);
    CHECK(cuMemAlloc(&p, 1), 709);
    CHECK(cuCtxPop(&c), 0);
}

static void primary(void) {
    CUcontext a, b;
    unsigned flags;
    int active;
    size_t before = free_bytes();
    CHECK(CU(cuDevicePrimaryCtxRelease, CUdevice)(0), 201);
    CHECK(CU(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&a, 0), 0);
    CHECK(CU(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&b, 0), 0);
    CHECK(a == b, 1);
    CHECK(before - free_bytes(), 64 * MIB);
    CHECK(cuCtxDestroy(a), 201);
    CHECK(CU(cuDevicePrimaryCtxRelease_v2, CUdevice)(0), 0);
    CHECK(CU(cuDevicePrimaryCtxGetState, CUdevice, unsigned *, int *)(0, &flags, &active), 0);
    CHECK(active, 1);
    CHECK(CU(cuDevicePrimaryCtxRelease_v2, CUdevice)(0), 0);
    CHECK(CU(cuDevicePrimaryCtxGetState, CUdevice, unsigned *, int *)(0, &flags, &active), 0);
    CHECK(active, 0);
    CHECK(free_bytes(), before);
    CHECK(CU(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)(&b, 0), 0);
    CHECK(a == b, 1);
    CHECK(CU(cuDevicePrimaryCtxReset_v2, CUdevice)(0), 0);
    CHECK(free_bytes(), before);
    CHECK(CU(cuDevicePrimaryCtxRelease_v2, CUdevice)(0), 0); // a reset does not release the retain
    CHECK(CU(cuDevicePrimaryCtxRelease_v2, CUdevice)(0), 201);
}

// A context that does not fit is refused, and no count changes.
static void context_too_many(void) {
    CUdeviceptr p;
    CUcontext c;
    CHECK(cuMemAlloc(&p, free_bytes() - 64 * MIB + 1), 0);
    size_t before = free_bytes();
    CHECK(cuCtxCreate(&c, 0, 0), 2);
    CHECK(free_bytes(), before);
    CHECK(cuMemFree(p), 0);
}

int main(void) {
    before_init();
    CHECK(cuInit(0), 0);
    without_context();
    CUcontext ctx = open_device(0);
    memory();
    handles();
    unsupported();
    contexts(ctx);
    destroyed_elsewhere();
    primary();
    context_too_many();
    CHECK(cuCtxDestroy(ctx), 0);
    return 0;
}
