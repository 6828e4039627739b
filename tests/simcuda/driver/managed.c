// SPDX-License-Identifier: Apache-2.0
//
// Location of managed memory. Requests are checked, and executed in the order of the stream. The
// location of pages is not simulated: bytes stay counted on the device where they were allocated.
// With SIMCUDA_MANAGED_MOVES a prefetch moves bytes at once, and only their number counts. A real
// driver also moves pages when they are used, and evicts them when other memory needs the room.

#include "driver.h"

enum { CPU = -1 };
enum { AT_DEVICE = 1, AT_HOST, AT_HOST_NUMA, AT_HOST_NUMA_CURRENT };
enum { SET_READ_MOSTLY = 1, UNSET_READ_MOSTLY, SET_PREFERRED, UNSET_PREFERRED, SET_ACCESSED_BY };
enum { UNSET_ACCESSED_BY = SET_ACCESSED_BY + 1 };

static CUmemLocation of_device(CUdevice dev) {
    return dev == CPU ? (CUmemLocation){AT_HOST, 0} : (CUmemLocation){AT_DEVICE, dev};
}

// Every host is one NUMA node.
static CUresult check_place(CUmemLocation at) {
    switch (at.type) {
    case AT_DEVICE:
        return dev_valid(at.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case AT_HOST_NUMA:
        return at.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case AT_HOST:
    case AT_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_range(CUdeviceptr p, size_t bytes) {
    pthread_mutex_lock(&drv.lock);
    struct block *b = bytes ? block_find(p) : NULL;
    bool whole = b && b->kind == BLOCK_MANAGED && bytes <= b->base + b->size - p;
    pthread_mutex_unlock(&drv.lock);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Checks an advice. Some advice has no location; then the argument is ignored.
static CUresult advise(CUdeviceptr p, size_t bytes, int advice, CUmemLocation at) {
    if (advice < SET_READ_MOSTLY || advice > UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = check_range(p, bytes);
    bool placed = advice >= SET_PREFERRED && advice != UNSET_PREFERRED;
    return rc || !placed ? rc : check_place(at);
}

EXPORT CUresult cuMemAdvise(CUdeviceptr p, size_t bytes, int advice, CUdevice dev) {
    ENTER_CTX(ctx);
    (void)ctx;
    return advise(p, bytes, advice, of_device(dev));
}

EXPORT CUresult cuMemAdvise_v2(CUdeviceptr p, size_t bytes, int advice, CUmemLocation at) {
    ENTER_CTX(ctx);
    (void)ctx;
    return advise(p, bytes, advice, at);
}

static void nothing(void *arg) {
    (void)arg;
}

// Queues an operation. It is refused in a capture, because no kind of node exists for it.
static CUresult enqueue(struct context *ctx, CUstream stream) {
    struct stream *s;
    CUresult rc = queue_find(ctx, stream, &s);
    if (rc)
        return rc;
    if (capture_is_on(s))
        rc = capture_refuse(s);
    queue_unref(s);
    return rc ? rc : queue_run(ctx, stream, nothing, NULL, 0, false);
}

static CUresult prefetch(struct context *ctx, CUdeviceptr p, size_t bytes, CUmemLocation at,
                         unsigned flags, CUstream stream) {
    CUresult rc = flags ? CUDA_ERROR_INVALID_VALUE : check_range(p, bytes);
    if (!rc)
        rc = check_place(at);
    if (!rc && drv.sim->config.managed_moves) {
        bool here = at.type == AT_DEVICE && at.id == ctx->phys;
        sim_page(drv.sim, drv.me, ctx->phys, here ? bytes : 0, here ? 0 : bytes);
    }
    return rc ? rc : enqueue(ctx, stream);
}

BOTH(cuMemPrefetchAsync, _ptsz, (CUdeviceptr p, size_t bytes, CUdevice dev, CUstream hStream),
     prefetch(ctx, p, bytes, of_device(dev), 0, s))
BOTH(cuMemPrefetchAsync_v2, _ptsz,
     (CUdeviceptr p, size_t bytes, CUmemLocation at, unsigned flags, CUstream hStream),
     prefetch(ctx, p, bytes, at, flags, s))

// A call with many ranges; since 13.0. Each location is for the ranges from its index on. A call
// that only discards has no locations.
struct batch {
    const CUdeviceptr *ranges;
    const size_t *bytes;
    size_t count;
    const CUmemLocation *places;
    const size_t *from;
    size_t place_count;
};

static CUresult run_batch(struct context *ctx, struct batch b, bool placed,
                          unsigned long long flags, CUstream stream) {
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    if (!b.ranges || !b.bytes || !b.count || flags || stream == CU_STREAM_LEGACY ||
        (placed && (!b.places || !b.from || !b.place_count || b.place_count > b.count)))
        return rc;
    for (size_t i = 0; i < b.count; i++)
        if ((rc = check_range(b.ranges[i], b.bytes[i])))
            return rc;
    for (size_t i = 0; placed && i < b.place_count; i++)
        if (b.from[i] >= b.count || (i ? b.from[i] <= b.from[i - 1] : b.from[0] != 0))
            return CUDA_ERROR_INVALID_VALUE;
        else if ((rc = check_place(b.places[i])))
            return rc;
    return enqueue(ctx, stream);
}

#define RANGES const CUdeviceptr *ranges, const size_t *bytes, size_t count
#define PLACES const CUmemLocation *places, const size_t *from, size_t place_count
#define BATCH ((struct batch){ranges, bytes, count, places, from, place_count})

BOTH(cuMemPrefetchBatchAsync, _ptsz, (RANGES, PLACES, unsigned long long flags, CUstream hStream),
     run_batch(ctx, BATCH, true, flags, s))
BOTH(cuMemDiscardAndPrefetchBatchAsync, _ptsz,
     (RANGES, PLACES, unsigned long long flags, CUstream hStream),
     run_batch(ctx, BATCH, true, flags, s))
BOTH(cuMemDiscardBatchAsync, _ptsz, (RANGES, unsigned long long flags, CUstream hStream),
     run_batch(ctx, (struct batch){ranges, bytes, count, NULL, NULL, 0}, false, flags, s))
