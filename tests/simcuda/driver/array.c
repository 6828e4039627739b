// SPDX-License-Identifier: Apache-2.0
//
// Arrays and mipmapped arrays. They are linear here and cost exactly their elements; a real device
// tiles and pads them.

#include "driver.h"

#include <stdlib.h>

enum {
    FLAG_LAYERED = 1,
    FLAG_CUBEMAP = 4,
    FLAG_SPARSE = 0x40,
    FLAG_DEFERRED = 0x80, // mapped later, like sparse arrays: sparse.c
    FLAGS_KNOWN = 0xff,
};

struct array_v1 {
    unsigned width, height;
    int format;
    unsigned channels;
};

struct array3d_v1 {
    unsigned width, height, depth;
    int format;
    unsigned channels, flags;
};

struct array {
    CUarray handle;
    CUcontext ctx;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    struct texels texels; // base 0: deferred
    bool level;           // a level of a mipmapped array, which owns the memory
};

struct mipmap {
    CUmipmappedArray handle;
    CUcontext ctx;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    CUdeviceptr base;
    unsigned levels;
    CUarray level[32]; // made when the program gets it
};

static unsigned format_bytes(int format) {
    switch (format) {
    case 0x01: // unsigned, signed: 8 bits
    case 0x08:
        return 1;
    case 0x02: // 16 bits, half
    case 0x09:
    case 0x10:
        return 2;
    case 0x03: // 32 bits, float
    case 0x0a:
    case 0x20:
        return 4;
    default:
        return 0;
    }
}

static CUresult check(const CUDA_ARRAY3D_DESCRIPTOR *d) {
    if (!d->Width || !format_bytes(d->Format) || (d->Flags & ~(unsigned)FLAGS_KNOWN) ||
        (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4))
        return CUDA_ERROR_INVALID_VALUE;
    if ((d->Flags & FLAG_CUBEMAP) && (d->Width != d->Height || d->Depth % 6 || !d->Depth))
        return CUDA_ERROR_INVALID_VALUE;
    if (d->Width > SIZE_MAX / 16) // the size of a row overflows
        return CUDA_ERROR_OUT_OF_MEMORY;
    // Checks sparse and deferred arrays: two or three dimensions, one of both flags, and in this
    // simulator no cubes.
    if ((d->Flags & FLAG_SPARSE) && (!d->Height || (d->Flags & FLAG_DEFERRED)))
        return CUDA_ERROR_INVALID_VALUE;
    return (d->Flags & FLAG_SPARSE) && (d->Flags & FLAG_CUBEMAP) ? CUDA_ERROR_NOT_SUPPORTED
                                                                 : CUDA_SUCCESS;
}

static struct texels shape(const CUDA_ARRAY3D_DESCRIPTOR *d) {
    struct texels t = {.element = format_bytes(d->Format) * d->NumChannels};
    t.pitch = d->Width * t.element;
    t.rows = d->Height ? d->Height : 1;
    t.slices = d->Depth ? d->Depth : 1;
    return t;
}

static bool size_of(const struct texels *t, uint64_t *size) {
    return !__builtin_mul_overflow(t->pitch, t->rows, size) &&
           !__builtin_mul_overflow(*size, t->slices, size);
}

// Allocates the memory, in a block to which no pointer of the program leads.
static CUresult back(struct context *ctx, uint64_t size, unsigned flags, CUdeviceptr *base) {
    *base = 0;
    return flags & (FLAG_DEFERRED | FLAG_SPARSE) ? CUDA_SUCCESS
                                                 : mem_alloc(ctx, size, BLOCK_ARRAY, base);
}

static void free_locked(CUdeviceptr base) {
    struct block *b = base ? block_exact(base) : NULL;
    if (b && b->kind == BLOCK_ARRAY)
        mem_free_locked(b);
}

static CUresult create(struct context *ctx, CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d) {
    uint64_t size;
    if (!out || !d)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = check(d);
    if (rc)
        return rc;
    struct texels t = shape(d);
    if (!size_of(&t, &size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if ((rc = back(ctx, size, d->Flags, &t.base)))
        return rc;
    struct array *a = calloc(1, sizeof *a);
    pthread_mutex_lock(&drv.lock);
    if (a) {
        *a = (struct array){.ctx = ctx->handle, .desc = *d, .texels = t};
        *out = a->handle = handle_new(HANDLE_ARRAY, a);
    } else {
        free_locked(t.base);
    }
    pthread_mutex_unlock(&drv.lock);
    return a ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d) {
    ENTER_CTX(ctx);
    if (!d)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR full = {d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
    return create(ctx, out, &full);
}

// The first interface, with 32-bit sizes.
EXPORT CUresult cuArrayCreate(CUarray *out, const struct array_v1 *d) {
    ENTER_CTX(ctx);
    if (!d)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR full = {d->width, d->height, 0, d->format, d->channels, 0};
    return create(ctx, out, &full);
}

EXPORT CUresult cuArray3DCreate(CUarray *out, const struct array3d_v1 *d) {
    ENTER_CTX(ctx);
    if (!d)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR full = {d->width,  d->height,   d->depth,
                                    d->format, d->channels, d->flags};
    return create(ctx, out, &full);
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d) {
    ENTER_CTX(ctx);
    return create(ctx, out, d);
}

// Returns an array that exists. An array ends with its context.
static struct array *array_locked(CUarray handle) {
    struct array *a = handle_get(HANDLE_ARRAY, handle);
    return a && ctx_by_handle(a->ctx) ? a : NULL;
}

static struct mipmap *mipmap_locked(CUmipmappedArray handle) {
    struct mipmap *m = handle_get(HANDLE_MIPMAP, handle);
    return m && ctx_by_handle(m->ctx) ? m : NULL;
}

EXPORT CUresult cuArrayDestroy(CUarray handle) {
    ENTER_CTX(ctx);
    queue_sync_context(ctx);
    pthread_mutex_lock(&drv.lock);
    struct array *a = array_locked(handle);
    bool own = a && !a->level;
    if (own) {
        free_locked(a->texels.base);
        sparse_drop(handle);
        handle_drop(HANDLE_ARRAY, handle);
        free(a);
    }
    pthread_mutex_unlock(&drv.lock);
    return own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult array_texels(CUarray handle, struct texels *out) {
    pthread_mutex_lock(&drv.lock);
    struct array *a = array_locked(handle);
    if (a)
        *out = a->texels;
    pthread_mutex_unlock(&drv.lock);
    if (!a)
        return CUDA_ERROR_INVALID_HANDLE;
    return out->base ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUDA_ARRAY3D_DESCRIPTOR level_desc(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level) {
    CUDA_ARRAY3D_DESCRIPTOR l = *d;
    l.Width = d->Width >> level ? d->Width >> level : 1;
    l.Height = d->Height && !(d->Height >> level) ? 1 : d->Height >> level;
    if (!(d->Flags & (FLAG_LAYERED | FLAG_CUBEMAP)))
        l.Depth = d->Depth && !(d->Depth >> level) ? 1 : d->Depth >> level;
    return l;
}

// Adds the bytes of the levels before this level.
static bool offset_of(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level, uint64_t *sum) {
    *sum = 0;
    for (unsigned i = 0; i < level; i++) {
        CUDA_ARRAY3D_DESCRIPTOR l = level_desc(d, i);
        struct texels t = shape(&l);
        uint64_t size;
        if (!size_of(&t, &size) || __builtin_add_overflow(*sum, size, sum))
            return false;
    }
    return true;
}

static unsigned max_levels(const CUDA_ARRAY3D_DESCRIPTOR *d) {
    size_t longest = d->Width > d->Height ? d->Width : d->Height;
    if (!(d->Flags & (FLAG_LAYERED | FLAG_CUBEMAP)) && d->Depth > longest)
        longest = d->Depth;
    unsigned n = 0;
    for (; longest; longest >>= 1)
        n++;
    return n > 32 ? 32 : n;
}

static CUresult enlist(struct context *ctx, uintptr_t *out, const CUDA_ARRAY3D_DESCRIPTOR *d,
                       unsigned levels, CUdeviceptr base) {
    struct mipmap *m = calloc(1, sizeof *m);
    pthread_mutex_lock(&drv.lock);
    if (m) {
        *m = (struct mipmap){.ctx = ctx->handle, .desc = *d, .base = base, .levels = levels};
        *out = m->handle = handle_new(HANDLE_MIPMAP, m);
    } else {
        free_locked(base);
    }
    pthread_mutex_unlock(&drv.lock);
    return m ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d,
                                       unsigned levels) {
    ENTER_CTX(ctx);
    uint64_t size;
    CUdeviceptr base;
    if (!out || !d || !levels)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = check(d);
    if (rc)
        return rc;
    if (levels > max_levels(d))
        levels = max_levels(d);
    if (!offset_of(d, levels, &size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    rc = back(ctx, size, d->Flags, &base);
    return rc ? rc : enlist(ctx, out, d, levels, base);
}

CUresult array_foreign(struct context *ctx, uintptr_t *out, const CUDA_ARRAY3D_DESCRIPTOR *d,
                       unsigned levels, uint64_t room) {
    uint64_t size;
    CUresult rc = levels && levels <= max_levels(d) ? check(d) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    if ((d->Flags & (FLAG_SPARSE | FLAG_DEFERRED)) || !offset_of(d, levels, &size) || size > room)
        return CUDA_ERROR_INVALID_VALUE;
    return enlist(ctx, out, d, levels, 0);
}

static CUresult get_level_locked(struct mipmap *m, unsigned level, CUarray *out) {
    if (!m)
        return CUDA_ERROR_INVALID_HANDLE;
    if (level >= m->levels)
        return CUDA_ERROR_INVALID_VALUE;
    if (!m->level[level]) {
        uint64_t offset = 0;
        struct array *a = calloc(1, sizeof *a);
        if (!a)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *a = (struct array){.ctx = m->ctx, .desc = level_desc(&m->desc, level), .level = true};
        a->texels = shape(&a->desc);
        offset_of(&m->desc, level, &offset);
        a->texels.base = m->base ? m->base + offset : 0;
        a->handle = m->level[level] = handle_new(HANDLE_ARRAY, a);
    }
    *out = m->level[level];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray handle, unsigned level) {
    ENTER_CTX(ctx);
    (void)ctx;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = get_level_locked(mipmap_locked(handle), level, out);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
    ENTER_CTX(ctx);
    queue_sync_context(ctx);
    pthread_mutex_lock(&drv.lock);
    struct mipmap *m = mipmap_locked(handle);
    if (m) {
        free_locked(m->base);
        sparse_drop(handle);
        for (unsigned i = 0; i < m->levels; i++) {
            free(handle_get(HANDLE_ARRAY, m->level[i]));
            handle_drop(HANDLE_ARRAY, m->level[i]);
        }
        handle_drop(HANDLE_MIPMAP, handle);
        free(m);
    }
    pthread_mutex_unlock(&drv.lock);
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult array_sparse(uintptr_t handle, bool mipmap, struct sparse *out) {
    const struct array *a = mipmap ? NULL : array_locked(handle);
    const struct mipmap *m = mipmap ? mipmap_locked(handle) : NULL;
    if (!a && !m)
        return CUDA_ERROR_INVALID_HANDLE;
    const CUDA_ARRAY3D_DESCRIPTOR *d = a ? &a->desc : &m->desc;
    struct texels t = shape(d);
    if (!(d->Flags & (FLAG_SPARSE | FLAG_DEFERRED)) || (a && a->level))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct sparse){.ctx = a ? a->ctx : m->ctx,
                           .size = {d->Width, t.rows, t.slices},
                           .layers = 1,
                           .levels = a ? 1 : m->levels,
                           .element = t.element,
                           .layered = d->Flags & FLAG_LAYERED,
                           .whole = d->Flags & FLAG_DEFERRED};
    if (out->layered) {
        out->layers = (unsigned)t.slices;
        out->size[2] = 1;
    }
    return offset_of(d, out->levels, &out->bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
