// SPDX-License-Identifier: Apache-2.0
//
// Device memory that belongs to a context: allocated and freed at once.

#include "driver.h"

#include <time.h>

struct sim_delta mem_cost(uint64_t size) {
    return (struct sim_delta){.user = (int64_t)size, .allocs = 1};
}

void mem_delay(void) {
    uint64_t ns = drv.sim->config.alloc_delay_ns;
    if (!ns)
        return;
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

// Cost of managed memory that moves: it counts as an allocation, and takes no bytes of the device.
static const struct sim_delta mem_cost_moving = {.allocs = 1};

static bool mem_moves(enum block_kind kind) {
    return kind == BLOCK_MANAGED && drv.sim->config.managed_moves;
}

CUresult mem_alloc(struct context *ctx, uint64_t size, enum block_kind kind, CUdeviceptr *out) {
    if (!out || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult unsafe = capture_unsafe();
    if (unsafe)
        return unsafe;
    mem_delay();
    bool moves = mem_moves(kind);
    if (size > sim_capacity(drv.sim, ctx->phys) && !moves)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!sim_take(drv.sim, drv.me, ctx->phys, moves ? mem_cost_moving : mem_cost(size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&drv.lock);
    bool lives = ctx_lives(ctx);
    struct block *b = lives ? block_new(size) : NULL;
    if (b) {
        b->ctx = ctx->handle;
        b->phys = ctx->phys;
        b->kind = (uint8_t)kind;
        *out = b->base;
    }
    pthread_mutex_unlock(&drv.lock);
    if (b && moves)
        sim_managed(drv.sim, drv.me, ctx->phys, (int64_t)size);
    if (b)
        return CUDA_SUCCESS;
    sim_give(drv.sim, drv.me, ctx->phys, moves ? mem_cost_moving : mem_cost(size));
    return lives ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void mem_free_locked(struct block *b) {
    if (b->pool)
        pool_take_back_locked(b);
    else if (b->kind == BLOCK_FOREIGN)
        foreign_dropped(b);
    else if (b->kind == BLOCK_MODULE)
        module_block_gone(b);
    else if (b->kind == BLOCK_HOST)
        host_count(-(int64_t)b->size);
    else if (mem_moves(b->kind)) {
        sim_managed(drv.sim, drv.me, b->phys, -(int64_t)b->size);
        sim_give(drv.sim, drv.me, b->phys, mem_cost_moving);
    } else
        sim_give_imported(drv.sim, drv.me, b->phys, mem_cost(b->size), b->id);
    if (b->graph)
        graph_block_freed(b);
    else
        block_drop(b);
}

static bool lives_in(struct block *b, void *ctx) {
    return b->ctx == ((struct context *)ctx)->handle && !b->pool;
}

void mem_release_context(struct context *ctx) {
    module_release_context(ctx);
    block_each(lives_in, ctx, mem_free_locked);
    host_release_context(ctx);
    sparse_release_context(ctx);
}

// Frees a block. The pointer tells its context, so a free needs no current context, as in a real
// driver (numba frees after it has popped its context). It waits for the work of the block's
// context. A block with a pending asynchronous free does not belong to the program any more.
CUresult mem_free(CUdeviceptr p, bool host) {
    struct context *current = NULL, *owner;
    CUresult rc = ctx_current(&current);
    if (!p)
        return host ? CUDA_SUCCESS : rc;
    CUresult unsafe = capture_unsafe();
    if (unsafe)
        return unsafe;
    pthread_mutex_lock(&drv.lock);
    struct block *b = block_exact(p);
    owner = b && !b->pool ? ctx_by_handle(b->ctx)
                          : NULL; // a block of a pool is assumed to be unused by now
    pthread_mutex_unlock(&drv.lock);
    if (owner)
        queue_sync_context(owner);
    pthread_mutex_lock(&drv.lock);
    b = block_exact(p);
    bool known = b && (b->kind == BLOCK_HOST) == host && b->kind != BLOCK_ARRAY && !b->freeing &&
                 !b->without_memory && !b->launches && !b->closed_by_handle;
    if (known)
        mem_free_locked(b);
    pthread_mutex_unlock(&drv.lock);
    if (known)
        return CUDA_SUCCESS;
    return current ? CUDA_ERROR_INVALID_VALUE : rc;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
    ENTER_CTX(ctx);
    return mem_alloc(ctx, size, BLOCK_DEVICE, out);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr p) {
    ENTER();
    return mem_free(p, false);
}

static CUresult shorten(CUresult rc, CUdeviceptr p, unsigned *out) {
    if (rc || block_short(p, out))
        return rc;
    mem_free(p, false);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemAlloc(unsigned *out, unsigned size) {
    ENTER_CTX(ctx);
    CUdeviceptr p = 0;
    CUresult rc = out ? mem_alloc(ctx, size, BLOCK_DEVICE, &p) : CUDA_ERROR_INVALID_VALUE;
    return shorten(rc, p, out);
}

EXPORT CUresult cuMemFree(unsigned p) {
    ENTER();
    return mem_free(block_long(p), false);
}

static CUresult alloc_pitch(struct context *ctx, CUdeviceptr *out, size_t *pitch, size_t width,
                            size_t height, unsigned element) {
    if (!out || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    size_t p, size, unit = drv.sim->config.pitch;
    if (__builtin_add_overflow(width, unit - 1, &p))
        return CUDA_ERROR_OUT_OF_MEMORY;
    p -= p % unit;
    if (__builtin_mul_overflow(p, height, &size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = mem_alloc(ctx, size, BLOCK_DEVICE, out);
    if (!rc)
        *pitch = p;
    return rc;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                                   unsigned element) {
    ENTER_CTX(ctx);
    return alloc_pitch(ctx, out, pitch, width, height, element);
}

EXPORT CUresult cuMemAllocPitch(unsigned *out, unsigned *pitch, unsigned width, unsigned height,
                                unsigned element) {
    ENTER_CTX(ctx);
    CUdeviceptr p = 0;
    size_t rows = 0;
    if (!out || !pitch)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = alloc_pitch(ctx, &p, &rows, width, height, element);
    rc = shorten(rc, p, out);
    if (!rc)
        *pitch = (unsigned)rows;
    return rc;
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags) {
    enum { ATTACH_GLOBAL = 1, ATTACH_HOST = 2 };
    ENTER_CTX(ctx);
    if (flags != ATTACH_GLOBAL && flags != ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return mem_alloc(ctx, size, BLOCK_MANAGED, out);
}

static CUresult get_info(struct context *ctx, size_t *free_bytes, size_t *total) {
    if (!free_bytes || !total)
        return CUDA_ERROR_INVALID_VALUE;
    sim_reap(drv.sim);
    uint64_t capacity = sim_capacity(drv.sim, ctx->phys);
    sim_lock(drv.sim);
    uint64_t used = drv.sim->dev[ctx->phys].used;
    sim_unlock(drv.sim);
    *free_bytes = used < capacity ? (size_t)(capacity - used) : 0;
    *total = (size_t)capacity;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ENTER_CTX(ctx);
    return get_info(ctx, free_bytes, total);
}

EXPORT CUresult cuMemGetInfo(unsigned *free_bytes, unsigned *total) {
    ENTER_CTX(ctx);
    size_t room = 0, all = 0;
    if (!free_bytes || !total)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = get_info(ctx, &room, &all);
    *free_bytes = room > UINT32_MAX ? UINT32_MAX : (unsigned)room;
    *total = all > UINT32_MAX ? UINT32_MAX : (unsigned)all;
    return rc;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p) {
    ENTER_CTX(ctx);
    (void)ctx;
    pthread_mutex_lock(&drv.lock);
    struct block *b = block_find(p);
    bool known = b != NULL;
    if (known && base)
        *base = b->base;
    if (known && size)
        *size = (size_t)b->size;
    struct range r;
    if (!known && vmm_find(p, &r)) {
        known = true;
        if (base)
            *base = r.base;
        if (size)
            *size = (size_t)r.size;
    }
    pthread_mutex_unlock(&drv.lock);
    return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
