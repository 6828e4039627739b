// SPDX-License-Identifier: Apache-2.0
//
// Memory that one process hands to another: what may be done with it, what it costs whom, and how
// long it stays. Then what costs nothing: to say where managed memory is to be, and who may use
// whose.

#include "testlib.h"

#include <fcntl.h>
#include <sys/wait.h>

#define MIB (1ull << 20)

struct data {
    unsigned char bytes[64];
};

#define cuMemPoolCreate CU(cuMemPoolCreate, CUmemoryPool *, const CUmemPoolProps *)
#define cuMemPoolDestroy CU(cuMemPoolDestroy, CUmemoryPool)
#define cuMemPoolTrimTo CU(cuMemPoolTrimTo, CUmemoryPool, size_t)
#define cuMemPoolGetAttribute CU(cuMemPoolGetAttribute, CUmemoryPool, int, void *)
#define cuMemAllocFromPoolAsync                                                                    \
    CU(cuMemAllocFromPoolAsync, CUdeviceptr *, size_t, CUmemoryPool, CUstream)
#define cuMemPoolExport                                                                            \
    CU(cuMemPoolExportToShareableHandle, void *, CUmemoryPool, int, unsigned long long)
#define cuMemPoolImport                                                                            \
    CU(cuMemPoolImportFromShareableHandle, CUmemoryPool *, void *, int, unsigned long long)
#define cuMemPoolExportPointer CU(cuMemPoolExportPointer, struct data *, CUdeviceptr)
#define cuMemPoolImportPointer                                                                     \
    CU(cuMemPoolImportPointer, CUdeviceptr *, CUmemoryPool, const struct data *)
#define cuMemCreate                                                                                \
    CU(cuMemCreate, CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,           \
       unsigned long long)
#define cuMemRelease CU(cuMemRelease, CUmemGenericAllocationHandle)
#define cuMemExport                                                                                \
    CU(cuMemExportToShareableHandle, void *, CUmemGenericAllocationHandle, int, unsigned long long)
#define cuMemImport CU(cuMemImportFromShareableHandle, CUmemGenericAllocationHandle *, void *, int)

// What the owner tells the importer.
struct handed {
    pid_t owner;
    int pool, memory;
    struct data block, ipc;
};

static const CUmemPoolProps sharable = {.allocType = 1, .handleTypes = 1, .location = {1, 0}};

static void tell(int fd, const void *what, size_t size) {
    CHECK(write(fd, what, size), size);
}

static void hear(int fd, void *what, size_t size) {
    CHECK(read(fd, what, size), size);
}

static uint64_t reserved(CUmemoryPool pool) {
    uint64_t bytes = 0;
    CHECK(cuMemPoolGetAttribute(pool, 5, &bytes), 0);
    return bytes;
}

// Takes 1, 2 and 4 MiB, hands them over, and lets go of the 2 MiB when it is told to; it dies with
// the others.
static void own(int in, int out) {
    CUmemAllocationProp prop = {.type = 1, .requestedHandleTypes = 1, .location = {1, 0}};
    struct handed h = {.owner = getpid()};
    CUmemoryPool pool, plain;
    CUmemGenericAllocationHandle memory, again;
    CUdeviceptr p, q, r, block;
    char c;
    CUmemPoolProps fabric = sharable;
    fabric.handleTypes = 8;
    open_device(0);
    CHECK(cuMemPoolCreate(&plain, &fabric), 801);
    CHECK(cuMemPoolCreate(&plain, &(CUmemPoolProps){.allocType = 1, .location = {1, 0}}), 0);
    CHECK(cuMemPoolExport(&h.pool, plain, 1, 0), 1);
    CHECK(cuMemPoolCreate(&pool, &sharable), 0);
    CHECK(cuMemPoolExport(&h.pool, pool, 8, 0), 1);
    CHECK(cuMemPoolExport(&h.pool, pool, 1, 1), 1);
    CHECK(cuMemPoolExport(&h.pool, pool, 1, 0), 0);
    CHECK(cuMemPoolImport(&plain, (void *)(intptr_t)h.pool, 1, 0), 1); // one's own
    CHECK(cuMemAllocFromPoolAsync(&p, 4 * MIB, pool, 0), 0);
    CHECK(cuMemPoolExportPointer(&h.block, p), 0);
    // It keeps what it has, whatever it is told.
    CHECK(cuMemAllocFromPoolAsync(&q, MIB, pool, 0), 0);
    CHECK(cuMemFreeAsync(q, 0), 0);
    CHECK(cuMemPoolExportPointer(&h.ipc, q), 1);
    CHECK(cuCtxSynchronize(), 0);
    CHECK(cuMemPoolTrimTo(pool, 0), 0);
    CHECK(reserved(pool), 5 * MIB);
    CHECK(cuMemAllocFromPoolAsync(&q, MIB, pool, 0), 0);
    CHECK(reserved(pool), 5 * MIB);

    CHECK(cuMemCreate(&memory, 2 * MIB, &prop, 0), 0);
    CHECK(cuMemExport(&h.memory, memory, 1, 0), 0);
    CHECK(cuMemImport(&again, (void *)(intptr_t)h.memory, 1), 0);
    CHECK(again, memory);
    CHECK(cuMemRelease(again), 0);
    CHECK(cuMemAlloc(&r, MIB), 0);
    CHECK(cuMemPoolExportPointer(&h.ipc, r), 1);
    CHECK(CU(cuIpcGetMemHandle, struct data *, CUdeviceptr)(&h.ipc, r), 0);
    CHECK(cuMemAlloc(&block, MIB), 0);
    tell(out, &h, sizeof h);
    hear(in, &c, 1);
    CHECK(cuMemRelease(memory), 0);
    CHECK(cuMemFree(block), 0);
    tell(out, "", 1);
    hear(in, &c, 1);
    _exit(0);
}

static void *descriptor(pid_t of, int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)of, fd);
    int mine = open(path, O_RDWR | O_CLOEXEC);
    CHECK(mine >= 0, true);
    return (void *)(intptr_t)mine;
}

static void refuse_imported(CUmemoryPool pool, CUdeviceptr p, const struct data *block) {
    CUmemoryPool mine;
    CUdeviceptr q;
    struct data data;
    char byte;
    int fd;
    CHECK(cuMemPoolCreate(&mine, &sharable), 0);
    CHECK(cuMemPoolImportPointer(&q, mine, block), 1);
    CHECK(cuMemPoolDestroy(mine), 0);
    CHECK(cuMemPoolImportPointer(&q, pool, &(struct data){{0}}), 1);
    CHECK(cuMemAllocFromPoolAsync(&q, 1, pool, 0), 1);
    CHECK(CU(cuDeviceSetMemPool, CUdevice, CUmemoryPool)(0, pool), 1);
    CHECK(cuMemPoolExport(&fd, pool, 1, 0), 1);
    CHECK(cuMemPoolExportPointer(&data, p), 1);
    CHECK(cuMemcpyDtoH(&byte, p, 1), 801);
}

static void import(int in, int out, pid_t child) {
    struct handed h;
    CUmemGenericAllocationHandle memory, once_more;
    CUmemoryPool pool;
    CUdeviceptr p, q, r;
    char c;
    open_device(0);
    hear(in, &h, sizeof h);
    size_t before = free_bytes();
    CHECK(cuMemPoolImport(&pool, descriptor(h.owner, h.pool), 1, 0), 0);
    CHECK(cuMemPoolImport(&pool, descriptor(h.owner, h.memory), 1, 0), 1);
    CHECK(cuMemImport(&memory, descriptor(h.owner, h.pool), 1), 1);
    CHECK(cuMemPoolImportPointer(&p, pool, &h.block), 0);
    CHECK(cuMemPoolImportPointer(&q, pool, &h.block), 0);
    CHECK(reserved(pool), 8 * MIB);
    refuse_imported(pool, p, &h.block);
    CHECK(cuMemFreeAsync(q, 0), 0);
    CHECK(cuMemFreeAsync(q, 0), 1);
    CHECK(cuCtxSynchronize(), 0);
    CHECK(reserved(pool), 4 * MIB);
    CHECK(cuMemImport(&memory, descriptor(h.owner, h.memory), 1), 0);
    CHECK(cuMemImport(&once_more, descriptor(h.owner, h.memory), 1), 0);
    CHECK(CU(cuIpcOpenMemHandle_v2, CUdeviceptr *, struct data, unsigned)(&r, h.ipc, 1), 0);
    CHECK(cuMemFreeAsync(r, 0), 1); // not the way
    CHECK(free_bytes(), before);

    // The owner has let go of 2 MiB that are here still, and of 1 that is nobody's.
    void *late = descriptor(h.owner, h.memory);
    tell(out, "", 1);
    hear(in, &c, 1);
    CHECK(free_bytes(), before + MIB);
    CHECK(cuMemImport(&memory, late, 1), 1);
    CHECK(cuMemRelease(memory), 0);
    CHECK(free_bytes(), before + MIB);
    CHECK(cuMemRelease(once_more), 0);
    CHECK(free_bytes(), before + 3 * MIB);

    // It dies. What is here stays, until it is given back.
    tell(out, "", 1);
    CHECK(waitpid(child, NULL, 0), child);
    size_t all = before + 9 * MIB + 64 * MIB; // and its context
    CHECK(free_bytes(), all - 5 * MIB);
    CHECK(cuMemPoolImportPointer(&q, pool, &h.block), 1);
    CHECK(cuMemFree(p), 0);
    CHECK(free_bytes(), all - MIB);
    CHECK(CU(cuIpcCloseMemHandle, CUdeviceptr)(r), 0);
    CHECK(free_bytes(), all);
    CHECK(cuMemPoolDestroy(pool), 0);
}

#define cuMemAdvise CU(cuMemAdvise, CUdeviceptr, size_t, int, CUdevice)
#define cuMemPrefetch CU(cuMemPrefetchAsync, CUdeviceptr, size_t, CUdevice, CUstream)
#define cuMemPrefetch_v2                                                                           \
    CU(cuMemPrefetchAsync_v2, CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream)
#define cuMemDiscardBatch                                                                          \
    CU(cuMemDiscardBatchAsync, CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream)

static void managed(void) {
    CUdeviceptr p, plain;
    CUstream s;
    uintptr_t graph;
    size_t size = MIB;
    CHECK(CU(cuMemAllocManaged, CUdeviceptr *, size_t, unsigned)(&p, MIB, 1), 0);
    CHECK(cuMemAlloc(&plain, MIB), 0);
    CHECK(cuStreamCreate(&s, 1), 0);
    size_t before = free_bytes();
    CHECK(cuMemAdvise(p, MIB, 3, -1), 0);
    CHECK(cuMemAdvise(p + 1, MIB, 3, 0), 1); // beyond the end
    CHECK(cuMemAdvise(p, 0, 3, 0), 1);
    CHECK(cuMemAdvise(p, MIB, 0, 0), 1);
    CHECK(cuMemAdvise(p, MIB, 7, 0), 1);
    CHECK(cuMemAdvise(p, MIB, 3, 2), 101);
    CHECK(cuMemAdvise(p, MIB, 1, 2), 0); // of no place
    CHECK(cuMemAdvise(plain, MIB, 3, 0), 1);
    CHECK(cuMemPrefetch(p, MIB, 1, s), 0);
    CHECK(cuMemPrefetch(p, MIB, -1, 0), 0);
    CHECK(cuMemPrefetch(p, MIB, 7, s), 101);
    CHECK(cuMemPrefetch(plain, MIB, 1, s), 1);
    CHECK(cuMemPrefetch_v2(p, MIB, (CUmemLocation){3, 0}, 0, s), 0);
    CHECK(cuMemPrefetch_v2(p, MIB, (CUmemLocation){3, 1}, 0, s), 1);
    CHECK(cuMemPrefetch_v2(p, MIB, (CUmemLocation){2, 0}, 1, s), 1);
    CHECK(cuMemDiscardBatch(&p, &size, 1, 0, s), 0);
    CHECK(cuMemDiscardBatch(&p, &size, 1, 0, 0), 1); // not on the default stream
    CHECK(cuMemDiscardBatch(&plain, &size, 1, 0, s), 1);
    CHECK(CU(cuStreamBeginCapture_v2, CUstream, int)(s, 2), 0);
    CHECK(cuMemPrefetch(p, MIB, 1, s), 900);
    CHECK(CU(cuStreamEndCapture, CUstream, uintptr_t *)(s, &graph), 901);
    CHECK(cuCtxSynchronize(), 0);
    CHECK(free_bytes(), before);
    CHECK(cuMemFree(p), 0);
    CHECK(cuMemFree(plain), 0);
    CHECK(cuStreamDestroy(s), 0);
}

#define cuCtxEnablePeerAccess CU(cuCtxEnablePeerAccess, CUcontext, unsigned)
#define cuCtxDisablePeerAccess CU(cuCtxDisablePeerAccess, CUcontext)

static void peers(void) {
    CUcontext first, second, third;
    CUmemoryPool pool;
    CUmemAccessDesc to = {{1, 1}, 3};
    int flags, can;
    CHECK(cuCtxGetCurrent(&first), 0);
    CHECK(CU(cuDeviceCanAccessPeer, int *, CUdevice, CUdevice)(&can, 0, 1), 0);
    CHECK(can, 1);
    CHECK(cuCtxCreate(&third, 0, 0), 0);
    CHECK(cuCtxCreate(&second, 0, 1), 0);
    CHECK(cuCtxEnablePeerAccess(second, 0), 201);
    CHECK(cuCtxEnablePeerAccess(first, 1), 1);
    CHECK(cuCtxEnablePeerAccess(first, 0), 0);
    CHECK(cuCtxEnablePeerAccess(first, 0), 704);
    CHECK(cuCtxDisablePeerAccess(third), 705);
    CHECK(cuCtxEnablePeerAccess(third, 0), 0);
    CHECK(cuCtxDestroy(third), 0);
    CHECK(cuCtxDisablePeerAccess(third), 201);
    CHECK(cuCtxDisablePeerAccess(first), 0);
    CHECK(cuCtxDestroy(second), 0);
    CHECK(cuCtxSetCurrent(first), 0);
    CHECK(cuCtxEnablePeerAccess(second, 0), 201);

#define cuMemPoolSetAccess CU(cuMemPoolSetAccess, CUmemoryPool, const CUmemAccessDesc *, size_t)
#define cuMemPoolGetAccess CU(cuMemPoolGetAccess, int *, CUmemoryPool, const CUmemLocation *)
    CHECK(cuMemPoolCreate(&pool, &sharable), 0);
    CHECK(cuMemPoolGetAccess(&flags, pool, &to.location), 0);
    CHECK(flags, 0);
    CHECK(cuMemPoolSetAccess(pool, &to, 1), 0);
    CHECK(cuMemPoolGetAccess(&flags, pool, &to.location), 0);
    CHECK(flags, 3);
    to = (CUmemAccessDesc){{1, 0}, 0};
    CHECK(cuMemPoolSetAccess(pool, &to, 1), 101);
    CHECK(cuMemPoolDestroy(pool), 0);
}

// No more than its largest size, in blocks at one time.
static void most(void) {
    CUmemPoolProps props = {.allocType = 1, .location = {1, 0}, .maxSize = 3 * MIB};
    CUmemoryPool pool;
    CUdeviceptr p, q;
    CHECK(cuMemPoolCreate(&pool, &props), 0);
    CHECK(cuMemAllocFromPoolAsync(&p, 4 * MIB, pool, 0), 2);
    CHECK(cuMemAllocFromPoolAsync(&p, 2 * MIB, pool, 0), 0);
    CHECK(cuMemAllocFromPoolAsync(&q, 2 * MIB, pool, 0), 2);
    CHECK(cuMemAllocFromPoolAsync(&q, MIB, pool, 0), 0);
    CHECK(cuMemFree(p), 0);
    CHECK(cuMemFree(q), 0);
    CHECK(cuMemPoolDestroy(pool), 0);
}

int main(void) {
    int to[2], from[2];
    CHECK(pipe(to), 0);
    CHECK(pipe(from), 0);
    pid_t child = fork();
    if (child == 0)
        own(to[0], from[1]);
    import(from[0], to[1], child);
    managed();
    peers();
    most();
    return 0;
}
