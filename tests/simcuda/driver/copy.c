// SPDX-License-Identifier: Apache-2.0
//
// Copies and fills. Every device range must lie inside one live block.

#include "driver.h"

#include <string.h>

enum side { SIDE_HOST, SIDE_DEVICE, SIDE_ANY };

// Source or destination of a copy: a box of bytes.
struct box {
    CUdeviceptr at;
    uint64_t pitch, slice;
};

struct copy {
    struct box dst, src;
    uint64_t width, height, depth;
};

struct fill {
    CUdeviceptr at;
    uint64_t pitch, width, height; // width in elements
    unsigned value, element;
};

// Checks that a range may be used as this side of a copy, and reports whether the device can reach
// it without the calling thread.
static CUresult check_range(CUdeviceptr p, uint64_t size, enum side side, bool write,
                            bool *pinned) {
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = CUDA_SUCCESS;
    *pinned = true;
    if (block_address(p)) {
        struct block *b = block_find(p);
        bool host = b && (b->kind == BLOCK_HOST || b->kind == BLOCK_MANAGED);
        if (!b || size > b->base + b->size - p || (side == SIDE_HOST && !host))
            rc = CUDA_ERROR_INVALID_VALUE;
        else if (b->kind == BLOCK_FOREIGN)
            rc = CUDA_ERROR_NOT_SUPPORTED;
        else if (write)
            b->touched = true;
    } else {
        *pinned = host_registered(p, size) || vmm_accessible(p, size);
        if (!*pinned && side == SIDE_DEVICE)
            rc = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static void run_copy(void *arg) {
    const struct copy *c = arg;
    for (uint64_t z = 0; z < c->depth; z++)
        for (uint64_t y = 0; y < c->height; y++)
            memmove((void *)(uintptr_t)(c->dst.at + z * c->dst.slice + y * c->dst.pitch),
                    (void *)(uintptr_t)(c->src.at + z * c->src.slice + y * c->src.pitch),
                    (size_t)c->width);
}

static uint64_t extent(const struct copy *c, const struct box *b) {
    return (c->depth - 1) * b->slice + (c->height - 1) * b->pitch + c->width;
}

// Queues a copy. As in a real driver, an asynchronous copy with pageable memory returns when the
// memory is no longer needed.
static CUresult do_copy(struct context *ctx, struct copy c, enum side dst, enum side src,
                        CUstream s, bool wait) {
    bool dst_pinned, src_pinned;
    if (!c.width || !c.height || !c.depth)
        return CUDA_SUCCESS;
    CUresult rc = check_range(c.dst.at, extent(&c, &c.dst), dst, true, &dst_pinned);
    if (!rc)
        rc = check_range(c.src.at, extent(&c, &c.src), src, false, &src_pinned);
    if (rc)
        return rc;
    rc = queue_run(ctx, s, run_copy, &c, sizeof c, wait || !dst_pinned || !src_pinned);
    return rc ? rc : dev_lost(ctx->phys);
}

static CUresult linear(struct context *ctx, CUdeviceptr dst, CUdeviceptr src, size_t n, enum side d,
                       enum side from, CUstream s, bool wait) {
    struct copy c = {.dst = {.at = dst}, .src = {.at = src}, .width = n, .height = 1, .depth = 1};
    return do_copy(ctx, c, d, from, s, wait);
}

#define HOST(p) ((CUdeviceptr)(uintptr_t)(p))

BOTH_SYNC(cuMemcpy, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t n),
          linear(ctx, dst, src, n, SIDE_ANY, SIDE_ANY, s, true))
BOTH_SYNC(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr dst, const void *src, size_t n),
          linear(ctx, dst, HOST(src), n, SIDE_DEVICE, SIDE_HOST, s, true))
BOTH_SYNC(cuMemcpyDtoH_v2, _ptds, (void *dst, CUdeviceptr src, size_t n),
          linear(ctx, HOST(dst), src, n, SIDE_HOST, SIDE_DEVICE, s, true))
BOTH_SYNC(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t n),
          linear(ctx, dst, src, n, SIDE_DEVICE, SIDE_DEVICE, s, true))
BOTH_SYNC(cuMemcpyPeer, _ptds,
          (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n),
          ((void)to, (void)from, linear(ctx, dst, src, n, SIDE_DEVICE, SIDE_DEVICE, s, true)))
BOTH(cuMemcpyAsync, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream hStream),
     linear(ctx, dst, src, n, SIDE_ANY, SIDE_ANY, s, false))
BOTH(cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr dst, const void *src, size_t n, CUstream hStream),
     linear(ctx, dst, HOST(src), n, SIDE_DEVICE, SIDE_HOST, s, false))
BOTH(cuMemcpyDtoHAsync_v2, _ptsz, (void *dst, CUdeviceptr src, size_t n, CUstream hStream),
     linear(ctx, HOST(dst), src, n, SIDE_HOST, SIDE_DEVICE, s, false))
BOTH(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream hStream),
     linear(ctx, dst, src, n, SIDE_DEVICE, SIDE_DEVICE, s, false))
BOTH(cuMemcpyPeerAsync, _ptsz,
     (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream hStream),
     ((void)to, (void)from, linear(ctx, dst, src, n, SIDE_DEVICE, SIDE_DEVICE, s, false)))

// One side of a structured copy: the position of its first byte.
struct corner {
    unsigned type;
    const void *host;
    CUdeviceptr device;
    size_t x, y, z, pitch, rows;
    CUarray array;
};

static CUresult place_array(const struct corner *k, uint64_t width, uint64_t height, uint64_t depth,
                            struct box *box) {
    struct texels t;
    CUresult rc = array_texels(k->array, &t);
    if (rc)
        return rc;
    if (k->x + width > t.pitch || k->y + height > t.rows || k->z + depth > t.slices)
        return CUDA_ERROR_INVALID_VALUE;
    box->pitch = t.pitch;
    box->slice = t.pitch * t.rows;
    box->at = t.base + k->z * box->slice + k->y * t.pitch + k->x;
    return CUDA_SUCCESS;
}

static CUresult place(struct corner k, uint64_t width, uint64_t height, uint64_t depth,
                      struct box *box, enum side *side) {
    switch (k.type) {
    case CU_MEMORYTYPE_HOST:
        box->at = HOST(k.host);
        *side = SIDE_HOST;
        break;
    case CU_MEMORYTYPE_DEVICE:
        box->at = k.device;
        *side = SIDE_DEVICE;
        break;
    case CU_MEMORYTYPE_UNIFIED:
        box->at = k.device;
        *side = SIDE_ANY;
        break;
    case CU_MEMORYTYPE_ARRAY:
        *side = SIDE_DEVICE;
        return place_array(&k, width, height, depth, box);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!box->at)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t pitch = k.pitch ? k.pitch : k.x + width;
    uint64_t rows = k.rows ? k.rows : k.y + height;
    if (pitch < k.x + width || rows < k.y + height)
        return CUDA_ERROR_INVALID_VALUE;
    box->pitch = pitch;
    box->slice = pitch * rows;
    box->at += k.z * box->slice + k.y * pitch + k.x;
    return CUDA_SUCCESS;
}

static CUresult boxes(struct context *ctx, struct corner d, struct corner from, uint64_t width,
                      uint64_t height, uint64_t depth, CUstream s, bool wait) {
    struct copy c = {.width = width, .height = height, .depth = depth};
    enum side dst, src;
    if (!width || !height || !depth)
        return CUDA_SUCCESS;
    CUresult rc = place(d, width, height, depth, &c.dst, &dst);
    if (!rc)
        rc = place(from, width, height, depth, &c.src, &src);
    return rc ? rc : do_copy(ctx, c, dst, src, s, wait);
}

static CUresult copy_2d(struct context *ctx, const CUDA_MEMCPY2D *p, CUstream s, bool wait) {
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    struct corner d = {.type = p->dstMemoryType,
                       .host = p->dstHost,
                       .device = p->dstDevice,
                       .array = p->dstArray,
                       .x = p->dstXInBytes,
                       .y = p->dstY,
                       .pitch = p->dstPitch};
    struct corner from = {.type = p->srcMemoryType,
                          .host = p->srcHost,
                          .device = p->srcDevice,
                          .array = p->srcArray,
                          .x = p->srcXInBytes,
                          .y = p->srcY,
                          .pitch = p->srcPitch};
    return boxes(ctx, d, from, p->WidthInBytes, p->Height, 1, s, wait);
}

static CUresult copy_3d(struct context *ctx, const CUDA_MEMCPY3D *p, CUstream s, bool wait) {
    if (!p || p->srcLOD || p->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    struct corner d = {p->dstMemoryType, p->dstHost,  p->dstDevice, p->dstXInBytes, p->dstY,
                       p->dstZ,          p->dstPitch, p->dstHeight, p->dstArray};
    struct corner from = {p->srcMemoryType, p->srcHost,  p->srcDevice, p->srcXInBytes, p->srcY,
                          p->srcZ,          p->srcPitch, p->srcHeight, p->srcArray};
    return boxes(ctx, d, from, p->WidthInBytes, p->Height, p->Depth, s, wait);
}

BOTH_SYNC(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *p), copy_2d(ctx, p, s, true))
BOTH_SYNC(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *p), copy_2d(ctx, p, s, true))
BOTH_SYNC(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *p), copy_3d(ctx, p, s, true))
BOTH(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *p, CUstream hStream),
     copy_2d(ctx, p, s, false))
BOTH(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *p, CUstream hStream),
     copy_3d(ctx, p, s, false))

// Copies between a one-dimensional array and linear memory; offsets are in bytes.
static CUresult with_array(struct context *ctx, CUarray array, size_t offset, CUdeviceptr p,
                           enum side side, size_t n, bool to_array, CUstream s, bool wait) {
    struct texels t;
    CUresult rc = array_texels(array, &t);
    if (rc)
        return rc;
    if (t.rows != 1 || t.slices != 1 || offset > t.pitch || n > t.pitch - offset)
        return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr a = t.base + offset;
    return to_array ? linear(ctx, a, p, n, SIDE_DEVICE, side, s, wait)
                    : linear(ctx, p, a, n, side, SIDE_DEVICE, s, wait);
}

BOTH_SYNC(cuMemcpyHtoA_v2, _ptds, (CUarray a, size_t at, const void *src, size_t n),
          with_array(ctx, a, at, HOST(src), SIDE_HOST, n, true, s, true))
BOTH_SYNC(cuMemcpyAtoH_v2, _ptds, (void *dst, CUarray a, size_t at, size_t n),
          with_array(ctx, a, at, HOST(dst), SIDE_HOST, n, false, s, true))
BOTH_SYNC(cuMemcpyDtoA_v2, _ptds, (CUarray a, size_t at, CUdeviceptr src, size_t n),
          with_array(ctx, a, at, src, SIDE_DEVICE, n, true, s, true))
BOTH_SYNC(cuMemcpyAtoD_v2, _ptds, (CUdeviceptr dst, CUarray a, size_t at, size_t n),
          with_array(ctx, a, at, dst, SIDE_DEVICE, n, false, s, true))
BOTH(cuMemcpyHtoAAsync_v2, _ptsz,
     (CUarray a, size_t at, const void *src, size_t n, CUstream hStream),
     with_array(ctx, a, at, HOST(src), SIDE_HOST, n, true, s, false))
BOTH(cuMemcpyAtoHAsync_v2, _ptsz, (void *dst, CUarray a, size_t at, size_t n, CUstream hStream),
     with_array(ctx, a, at, HOST(dst), SIDE_HOST, n, false, s, false))

static void run_fill(void *arg) {
    const struct fill *f = arg;
    for (uint64_t y = 0; y < f->height; y++) {
        char *row = (char *)(uintptr_t)(f->at + y * f->pitch);
        if (f->element == 1)
            memset(row, (int)f->value, (size_t)f->width);
        else
            for (uint64_t x = 0; x < f->width; x++)
                memcpy(row + x * f->element, &f->value, f->element); // little-endian
    }
}

static CUresult fill(struct context *ctx, CUdeviceptr at, uint64_t pitch, unsigned value,
                     unsigned element, uint64_t width, uint64_t height, CUstream s, bool wait) {
    bool pinned;
    if (!width || !height)
        return CUDA_SUCCESS;
    if (at % element || (height > 1 && (pitch % element || pitch < width * element)))
        return CUDA_ERROR_INVALID_VALUE;
    struct fill f = {at, pitch, width, height, value, element};
    CUresult rc =
        check_range(at, (height - 1) * pitch + width * element, SIDE_DEVICE, true, &pinned);
    if (!rc)
        rc = queue_run(ctx, s, run_fill, &f, sizeof f, wait);
    return rc ? rc : dev_lost(ctx->phys);
}

#define FILLS(bits, type, bytes)                                                                   \
    BOTH_SYNC(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr dst, type value, size_t n),                \
              fill(ctx, dst, 0, value, bytes, n, 1, s, true))                                      \
    BOTH(cuMemsetD##bits##Async, _ptsz, (CUdeviceptr dst, type value, size_t n, CUstream hStream), \
         fill(ctx, dst, 0, value, bytes, n, 1, s, false))                                          \
    BOTH_SYNC(cuMemsetD2D##bits##_v2, _ptds,                                                       \
              (CUdeviceptr dst, size_t pitch, type value, size_t w, size_t h),                     \
              fill(ctx, dst, pitch, value, bytes, w, h, s, true))                                  \
    BOTH(cuMemsetD2D##bits##Async, _ptsz,                                                          \
         (CUdeviceptr dst, size_t pitch, type value, size_t w, size_t h, CUstream hStream),        \
         fill(ctx, dst, pitch, value, bytes, w, h, s, false))

FILLS(8, unsigned char, 1)
FILLS(16, unsigned short, 2)
FILLS(32, unsigned, 4)
