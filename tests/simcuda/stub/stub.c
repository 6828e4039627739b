// SPDX-License-Identifier: Apache-2.0
//
// A driver that does nothing, without a lock or a system call: the time of an allocation on it is
// the time that the library adds. It has one device, one context, and addresses without memory.

#include "cuda_abi.h"
#include "resolve.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define STUB_TOTAL (64ull << 30)
#define STUB_CONTEXT ((CUcontext)0x520000000040ull)
#define STUB_POOL ((CUmemoryPool)0x540000000040ull)
#define ARENA_FIRST 0x100000000000ull
#define ARENA_BYTES (1ull << 40)

enum { STEP = 512, ARENAS = 64 };

// Each thread takes addresses from an arena of its own. Each block takes one step, whatever its
// size. After two thousand million blocks the arena starts again.
static uint64_t arenas;
static _Thread_local uint64_t arena, next;
static _Thread_local uint64_t next_stream, next_event;

static CUdeviceptr bump(void) {
    if (!arena) {
        uint64_t n = __atomic_fetch_add(&arenas, 1, __ATOMIC_RELAXED);
        arena = ARENA_FIRST + n % ARENAS * ARENA_BYTES;
    }
    next = (next + STEP) & (ARENA_BYTES - 1);
    return arena + next;
}

EXPORT CUresult cuInit(unsigned flags) {
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *v) {
    return *v = 12050, CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetCount(int *n) {
    return *n = 1, CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *d, int n) {
    *d = 0;
    return n ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice d) {
    (void)d;
    snprintf(name, (size_t)len, "Stub GPU");
    return CUDA_SUCCESS;
}

// The UUID equals that of the simulator's first device, so that a daemon that reads the simulated
// NVML knows the device.
EXPORT CUresult cuDeviceGetUuid(CUuuid *u, CUdevice d) {
    static const CUuuid uuid = {{0x51, 0x3c, 0xda, 0x01, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 1}};
    (void)d;
    *u = uuid;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *u, CUdevice d) {
    return cuDeviceGetUuid(u, d);
}

EXPORT CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice d) {
    (void)d;
    snprintf(id, (size_t)len, "0000:10:00.0");
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice d) {
    (void)d;
    *value = attribute == 14 ? 512 : attribute == 75 ? 8 : attribute == 76 ? 6 : 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) {
    (void)d;
    return *n = STUB_TOTAL, CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *f, size_t *t) {
    *f = *t = STUB_TOTAL;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *c, unsigned flags, CUdevice d) {
    (void)flags, (void)d;
    return *c = STUB_CONTEXT, CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext c) {
    return (void)c, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext *c) {
    return *c = STUB_CONTEXT, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
    return (void)c, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext c) {
    return (void)c, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *c) {
    return c ? *c = STUB_CONTEXT : 0, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetDevice(CUdevice *d) {
    return *d = 0, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSynchronize(void) {
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
    (void)d;
    return *c = STUB_CONTEXT, CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
    return (void)d, CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
    (void)d;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
    if (!n)
        return CUDA_ERROR_INVALID_VALUE;
    *p = bump();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr p) {
    return (void)p, CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *p, size_t n, CUstream s) {
    (void)s;
    return cuMemAlloc_v2(p, n);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s) {
    return (void)p, (void)s, CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice d) {
    (void)d;
    return *pool = STUB_POOL, CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice d) {
    return cuDeviceGetDefaultMemPool(pool, d);
}

// Reports that the pool keeps a gigabyte, for every attribute.
EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
    uint64_t kept = 1ull << 30;
    (void)pool, (void)attribute;
    memcpy(value, &kept, sizeof kept);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCtx(CUstream s, CUcontext *c) {
    (void)s;
    return *c = STUB_CONTEXT, CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream s, int *status) {
    (void)s;
    return *status = 0, CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *s, unsigned flags) {
    (void)flags;
    *s = (CUstream)(0x530000000000ull + 64 * ++next_stream);
    return CUDA_SUCCESS;
}

// A stream with a priority below 0 never completes.
#define NEVER_DONE 32u
EXPORT CUresult cuStreamCreateWithPriority(CUstream *s, unsigned flags, int priority) {
    CUresult rc = cuStreamCreate(s, flags);
    *s = (CUstream)((uintptr_t)*s | (priority < 0 ? NEVER_DONE : 0));
    return rc;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream s) {
    return (void)s, CUDA_SUCCESS;
}
EXPORT CUresult cuStreamSynchronize(CUstream s) {
    return (void)s, CUDA_SUCCESS;
}
EXPORT CUresult cuStreamQuery(CUstream s) {
    return (uintptr_t)s & NEVER_DONE ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
EXPORT CUresult cuEventCreate(CUevent *e, unsigned flags) {
    (void)flags;
    *e = (CUevent)(0x550000000000ull + 64 * ++next_event);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent e, CUstream s) {
    return (void)e, (void)s, CUDA_SUCCESS;
}
EXPORT CUresult cuEventQuery(CUevent e) {
    return (void)e, CUDA_SUCCESS;
}
EXPORT CUresult cuEventDestroy_v2(CUevent e) {
    return (void)e, CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(void) {
    return CUDA_SUCCESS;
} // a launch does nothing
