// SPDX-License-Identifier: Apache-2.0
//
// Stream-ordered memory. When a free has executed, its pool keeps the memory. At the next
// synchronisation the pool gives back the bytes above its release threshold. A pool counts bytes,
// unless pools are made of chunks (chunk.c). A pool that can be exported keeps its memory to its
// end: NVIDIA's programming guide says that trimming such a pool does nothing, and that its
// threshold is ignored.

#include "pool.h"

#include <stdlib.h>
#include <string.h>

enum pool_attribute {
    REUSE_FOLLOW_EVENT = 1,
    REUSE_OPPORTUNISTIC,
    REUSE_INTERNAL,
    RELEASE_THRESHOLD,
    RESERVED_CURRENT,
    RESERVED_HIGH,
    USED_CURRENT,
    USED_HIGH,
};

enum { ALLOCATION_PINNED = 1, ALLOCATION_MANAGED };
enum { LOCATION_NONE = 0, LOCATION_HOST = 2 };
enum { ANYWHERE = POOL_ANYWHERE, ON_HOST = POOL_ON_HOST };

// All under drv.lock.
static struct {
    struct pool *all;
    struct pool *dflt[MAX_DEV];    // default pool of each physical device
    struct pool *domain[MAX_DEV];  // pool of the device's locality domain
    struct pool *current[MAX_DEV]; // pool that cuMemAllocAsync uses
    struct pool *graph[MAX_DEV];   // pool of graphs; trimmed only on demand
} pools;

CUmemoryPool pool_handle(const struct pool *p) {
    return p ? p->handle : 0;
}

struct pool *pool_new(int phys) {
    struct pool *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->phys = phys;
    p->pending_end = &p->pending;
    p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
    p->handle = handle_new(HANDLE_POOL, p);
    p->next = pools.all;
    pools.all = p;
    return p;
}

static struct pool *default_in(struct pool *of[MAX_DEV], int phys) {
    if (!of[phys]) {
        struct pool *p = pool_new(phys);
        if (!p)
            return NULL;
        p->is_default = true;
        of[phys] = p;
    }
    return of[phys];
}

static struct pool *default_locked(int phys) {
    return default_in(pools.dflt, phys);
}

static struct pool *current_locked(int phys) {
    return pools.current[phys] ? pools.current[phys] : default_locked(phys);
}

void pool_note_high(struct pool *p) {
    if (p->used + p->idle > p->reserved_high)
        p->reserved_high = p->used + p->idle;
    if (p->used > p->used_high)
        p->used_high = p->used;
}

static bool is_chunked(const struct pool *p) {
    return drv.sim->config.pool_granule != 0 && p->phys >= 0;
}

static void trim_locked(struct pool *p, uint64_t keep) {
    uint64_t reserved = p->used + p->idle;
    if (reserved <= keep || !p->idle || (p->exportable && !p->dying))
        return;
    uint64_t give = reserved - keep < p->idle ? reserved - keep : p->idle;
    if (is_chunked(p))
        give = chunk_trim(p, give);
    p->idle -= give;
    sim_give(drv.sim, drv.me, p->phys, (struct sim_delta){.extra = (int64_t)give});
}

static void drop_if_over(struct pool *p) {
    if (!p->dying || p->blocks)
        return;
    trim_locked(p, 0);
    for (struct pool **q = &pools.all; *q; q = &(*q)->next)
        if (*q == p) {
            *q = p->next;
            break;
        }
    free(p);
}

// Returns the id of a stream. Streams and contexts share one counter, so no id is used twice.
static uint64_t name_of(const struct stream *s) {
    return s->legacy ? s->ctx->id : s->id;
}

static void set_late(struct block *b, const struct stream *s) {
    b->freeing = true;
    if (!b->pool)
        return;
    b->freed_on = name_of(s);
    b->next_pending = NULL;
    *b->pool->pending_end = b;
    b->pool->pending_end = &b->next_pending;
}

static void unset_late(struct block *b) {
    struct block **at = b->pool ? &b->pool->pending : NULL;
    while (at && *at && *at != b)
        at = &(*at)->next_pending;
    b->freeing = false;
    if (!at || !*at)
        return;
    *at = b->next_pending;
    if (!*at)
        b->pool->pending_end = at;
}

// Returns a block that was freed on the same stream. It can be used again at once, because its new
// use comes later in the stream.
static struct block *again_locked(struct pool *p, const struct stream *s, uint64_t size) {
    enum { MOST = 256 };
    int looks = 0;
    for (struct block *b = p->pending; b && looks < MOST; b = b->next_pending, looks++) {
        if (b->freed_on != name_of(s) || b->size != size || b->graph)
            continue;
        unset_late(b);
        block_renew(b); // the pending free then does nothing
        return b;
    }
    return NULL;
}

void pool_take_back_locked(struct block *b) {
    struct pool *p = b->pool;
    if (b->freeing)
        unset_late(b);
    if (p->phys == ON_HOST || p->imported) {
        if (p->imported)
            pool_return(p, b);
        else
            host_count(-(int64_t)b->size);
        p->blocks--;
        drop_if_over(p);
        return;
    }
    if (p->exportable)
        sim_end_imports(drv.sim, drv.me, b->id);
    if (is_chunked(p))
        chunk_give(b->place, b->size);
    // The program's bytes become the pool's in one step, so that the device never shows them as
    // free.
    sim_give(drv.sim, drv.me, b->phys,
             (struct sim_delta){(int64_t)b->size, -(int64_t)b->size, 1, 0, 0});
    p->used -= b->size;
    p->idle += b->size;
    p->blocks--;
    drop_if_over(p);
}

void pool_sync_point(int phys) {
    pthread_mutex_lock(&drv.lock);
    for (struct pool *p = pools.all; p; p = p->next)
        if (p->phys == phys && p->idle && !p->dying)
            trim_locked(p, p->threshold);
    pthread_mutex_unlock(&drv.lock);
}

// Takes memory of the device. If there is too little, other pools of the program give up what they
// keep unused.
static bool take_of_device(struct pool *p, struct sim_delta d) {
    if (sim_take(drv.sim, drv.me, p->phys, d))
        return true;
    for (struct pool *q = pools.all; q; q = q->next)
        if (q != p && q->phys == p->phys && !q->dying)
            trim_locked(q, 0);
    return sim_take(drv.sim, drv.me, p->phys, d);
}

// Takes a piece of a chunk, or adds a chunk.
static bool charge_chunk(struct pool *p, struct sim_delta d, struct chunk_place *out) {
    uint64_t size = (uint64_t)d.user;
    if (chunk_take(p, size, out)) {
        d.extra = -d.user; // takes nothing of the device
        p->idle -= size;
        return sim_take(drv.sim, drv.me, p->phys, d);
    }
    uint64_t chunk = chunk_round(size);
    uint64_t remapped = chunk_remappable(p, chunk);
    d.extra = (int64_t)(chunk - size - remapped);
    if (!take_of_device(p, d))
        return false;
    chunk_remap(p, remapped);
    p->idle += chunk - size - remapped;
    if (!chunk_add(p, chunk) || !chunk_take(p, size, out))
        abort();
    return true;
}

// Takes bytes that the pool keeps, then bytes of the device.
static bool charge_bytes(struct pool *p, struct sim_delta d) {
    uint64_t size = (uint64_t)d.user;
    uint64_t kept = p->idle < size ? p->idle : size;
    d.extra -= (int64_t)kept;
    if (!take_of_device(p, d))
        return false;
    p->idle -= kept;
    return true;
}

// Takes a block's bytes.
static bool charge_locked(struct pool *p, uint64_t size, struct chunk_place *out) {
    *out = (struct chunk_place){0};
    if (p->phys == ON_HOST) {
        host_count((int64_t)size);
        p->blocks++;
        return true;
    }
    struct sim_delta d = mem_cost(size);
    if (p->most && (p->used > p->most || size > p->most - p->used))
        return false;
    if (!(is_chunked(p) ? charge_chunk(p, d, out) : charge_bytes(p, d)))
        return false;
    p->used += size;
    p->blocks++;
    pool_note_high(p);
    return true;
}

bool pool_charge_graph(struct block *b) {
    struct pool **p = &pools.graph[b->phys];
    if (!*p && !(*p = pool_new(b->phys)))
        return false;
    (*p)->threshold = UINT64_MAX;
    if (!charge_locked(*p, b->size, &b->place))
        return false;
    b->pool = *p;
    return true;
}

static struct block *alloc_locked(struct context *ctx, struct pool *p, uint64_t size) {
    struct chunk_place place;
    if (!charge_locked(p, size, &place))
        return NULL;
    struct block *b = block_new(size);
    if (!b) {
        struct block gone = {.size = size, .pool = p, .place = place, .phys = p->phys};
        pool_take_back_locked(&gone);
        return NULL;
    }
    b->place = place;
    b->ctx = ctx->handle;
    b->pool = p;
    b->phys = p->phys;
    b->kind = BLOCK_ASYNC;
    return b;
}

static CUresult captured_alloc(struct stream *s, uint64_t size, CUdeviceptr *out) {
    struct graph *g;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = capture_graph(s, &g);
    if (!rc)
        rc = graph_add_alloc(g, s->ctx->dev, size, out);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static CUresult alloc_from(struct context *ctx, CUmemoryPool handle, bool named, uint64_t size,
                           CUstream stream, CUdeviceptr *out) {
    struct stream *s;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = queue_find(ctx, stream, &s);
    if (rc)
        return rc;
    if (!size) { // nothing, and well
        queue_unref(s);
        *out = 0;
        return CUDA_SUCCESS;
    }
    if (capture_is_on(s)) {
        rc = captured_alloc(s, size, out);
        queue_unref(s);
        return rc;
    }
    mem_delay();
    bool waited = false;
    struct block *b = NULL;
    for (;;) {
        pthread_mutex_lock(&drv.lock);
        struct pool *p = named ? handle_get(HANDLE_POOL, handle) : current_locked(s->ctx->phys);
        if (p && p->phys == ANYWHERE)
            p->phys = s->ctx->phys;
        if (!p)
            rc = named ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
        else if (p->imported) // refused by the driver
            rc = CUDA_ERROR_INVALID_VALUE;
        else if ((b = again_locked(p, s, size)) || (b = alloc_locked(ctx, p, size)))
            *out = b->base;
        pthread_mutex_unlock(&drv.lock);
        // If memory is short, the driver makes the allocation wait for pending frees. A free may
        // have arrived since the first attempt, so the allocation is tried again in any case.
        if (b || rc || waited)
            break;
        waited = true;
        queue_sync_context(ctx);
    }
    queue_unref(s);
    return b ? CUDA_SUCCESS : rc ? rc : CUDA_ERROR_OUT_OF_MEMORY;
}

BOTH(cuMemAllocAsync, _ptsz, (CUdeviceptr * out, size_t size, CUstream hStream),
     alloc_from(ctx, 0, false, size, s, out))
BOTH(cuMemAllocFromPoolAsync, _ptsz,
     (CUdeviceptr * out, size_t size, CUmemoryPool pool, CUstream hStream),
     alloc_from(ctx, pool, true, size, s, out))

struct late_free {
    CUdeviceptr p;
    uint64_t id;
    uint32_t recalls;
};

void pool_recall_locked(struct block *b) {
    unset_late(b);
    b->recalls++;
}

static void executed(void *arg) {
    struct late_free *f = arg;
    pthread_mutex_lock(&drv.lock);
    struct block *b = block_exact(f->p);
    if (b && b->id == f->id && b->recalls == f->recalls && !b->without_memory)
        mem_free_locked(b);
    pthread_mutex_unlock(&drv.lock);
}

static CUresult captured_free(struct stream *s, CUdeviceptr p) {
    struct graph *g;
    CUresult rc = capture_graph(s, &g);
    return rc ? rc : graph_add_free(g, p);
}

CUresult pool_free_async(struct context *ctx, CUdeviceptr p, CUstream stream) {
    struct stream *s;
    CUresult rc = queue_find(ctx, stream, &s);
    if (rc)
        return rc;
    pthread_mutex_lock(&drv.lock);
    struct block *b = block_exact(p);
    if (capture_is_on(s)) {
        rc = captured_free(s, p);
    } else if (!p) {
        rc = CUDA_SUCCESS; // nothing, and well
    } else if (!b || b->freeing || b->without_memory || b->launches || b->kind == BLOCK_HOST ||
               b->kind == BLOCK_MANAGED || b->kind == BLOCK_ARRAY || b->closed_by_handle) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else {
        struct late_free f = {p, b->id, b->recalls};
        set_late(b, s);
        rc = queue_add(s, executed, &f, sizeof f, NULL, NULL);
        if (rc)
            unset_late(b);
    }
    pthread_mutex_unlock(&drv.lock);
    queue_kick(s);
    queue_unref(s);
    return rc;
}

BOTH(cuMemFreeAsync, _ptsz, (CUdeviceptr p, CUstream hStream), pool_free_async(ctx, p, s))

static CUresult get_locked(struct pool *p, int attribute, void *value);

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice dev) {
    ENTER();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&drv.lock);
    struct pool *p = default_locked(drv.phys[dev]);
    if (p)
        *out = p->handle;
    pthread_mutex_unlock(&drv.lock);
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice dev) {
    ENTER();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&drv.lock);
    struct pool *p = current_locked(drv.phys[dev]);
    if (p)
        *out = p->handle;
    pthread_mutex_unlock(&drv.lock);
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Returns the pool of a location; since 13.0. This simulator knows devices and their locality
// domains (13.4).
static CUresult pool_of(CUmemoryPool *out, const CUmemLocation *location, int type,
                        struct pool *(*get)(int phys)) {
    if (!out || !location)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != ALLOCATION_PINNED || !on_device(location))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (dev_at(location) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    int phys = drv.phys[dev_at(location)];
    pthread_mutex_lock(&drv.lock);
    struct pool *p = location->type == LOCATION_DOMAIN ? default_in(pools.domain, phys) : get(phys);
    if (p)
        *out = p->handle;
    pthread_mutex_unlock(&drv.lock);
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool *out, const CUmemLocation *location, int type) {
    ENTER();
    return pool_of(out, location, type, default_locked);
}

EXPORT CUresult cuMemGetMemPool(CUmemoryPool *out, const CUmemLocation *location, int type) {
    ENTER();
    return pool_of(out, location, type, current_locked);
}

static CUresult take_from(CUdevice dev, CUmemoryPool handle) {
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&drv.lock);
    struct pool *p = handle_get(HANDLE_POOL, handle);
    bool fits = p && p->phys == drv.phys[dev] && !p->imported;
    if (fits)
        pools.current[p->phys] = p;
    pthread_mutex_unlock(&drv.lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle) {
    ENTER();
    return take_from(dev, handle);
}

EXPORT CUresult cuMemSetMemPool(const CUmemLocation *location, int type, CUmemoryPool handle) {
    ENTER();
    if (!location)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != ALLOCATION_PINNED || location->type != LOCATION_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    return take_from(location->id, handle);
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice dev) {
    ENTER();
    CUresult unsafe = capture_unsafe();
    if (unsafe)
        return unsafe;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&drv.lock);
    struct pool *p = pools.graph[drv.phys[dev]];
    if (p)
        trim_locked(p, 0);
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, int attribute, void *value) {
    static const int as_pool[] = {USED_CURRENT, USED_HIGH, RESERVED_CURRENT, RESERVED_HIGH};
    ENTER();
    if (!value || attribute < 0 || attribute > 3)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&drv.lock);
    static struct pool none;
    struct pool *p = pools.graph[drv.phys[dev]];
    get_locked(p ? p : &none, as_pool[attribute], value);
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props) {
    ENTER();
    if (!out || !props)
        return CUDA_ERROR_INVALID_VALUE;
    bool anywhere = props->allocType == ALLOCATION_MANAGED && props->location.type == LOCATION_NONE;
    if (props->allocType != ALLOCATION_PINNED && !anywhere)
        return CUDA_ERROR_INVALID_VALUE;
    bool host = props->location.type == LOCATION_HOST;
    if ((!on_device(&props->location) && !anywhere && !host) ||
        (props->handleTypes & ~POOL_HANDLE_FD) || ((host || anywhere) && props->handleTypes))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUdevice dev = dev_at(&props->location);
    if (!anywhere && !host && dev < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&drv.lock);
    struct pool *p = pool_new(anywhere ? ANYWHERE : host ? ON_HOST : drv.phys[dev]);
    if (p) {
        p->exportable = props->handleTypes != 0;
        p->most = props->maxSize;
        *out = p->handle;
    }
    pthread_mutex_unlock(&drv.lock);
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct pool *p = handle_get(HANDLE_POOL, handle);
    bool own = p && !p->is_default;
    if (own) {
        if (p->phys >= 0 && pools.current[p->phys] == p)
            pools.current[p->phys] = NULL;
        handle_drop(HANDLE_POOL, handle);
        p->dying = true;
        p->threshold = 0;
        drop_if_over(p);
    }
    pthread_mutex_unlock(&drv.lock);
    return own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    ENTER();
    CUresult unsafe = capture_unsafe();
    if (unsafe)
        return unsafe;
    pthread_mutex_lock(&drv.lock);
    struct pool *p = handle_get(HANDLE_POOL, handle);
    if (p)
        trim_locked(p, keep);
    pthread_mutex_unlock(&drv.lock);
    return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_locked(struct pool *p, int attribute, void *value) {
    uint64_t v;
    switch (attribute) {
    case REUSE_FOLLOW_EVENT:
    case REUSE_OPPORTUNISTIC:
    case REUSE_INTERNAL:
        *(int *)value = p->reuse[attribute - 1];
        return CUDA_SUCCESS;
    case RELEASE_THRESHOLD:
        v = p->threshold;
        break;
    case RESERVED_CURRENT:
        v = p->used + p->idle;
        break;
    case RESERVED_HIGH:
        v = p->reserved_high;
        break;
    case USED_CURRENT:
        v = p->used;
        break;
    case USED_HIGH:
        v = p->used_high;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(value, &v, sizeof v);
    return CUDA_SUCCESS;
}

static CUresult set_locked(struct pool *p, int attribute, const void *value) {
    uint64_t v;
    switch (attribute) {
    case REUSE_FOLLOW_EVENT:
    case REUSE_OPPORTUNISTIC:
    case REUSE_INTERNAL:
        p->reuse[attribute - 1] = *(const int *)value != 0;
        return CUDA_SUCCESS;
    case RELEASE_THRESHOLD:
        memcpy(&p->threshold, value, sizeof p->threshold);
        return CUDA_SUCCESS;
    case RESERVED_HIGH:
    case USED_HIGH:
        memcpy(&v, value, sizeof v);
        if (v) // high-water marks can only be reset
            return CUDA_ERROR_INVALID_VALUE;
        if (attribute == USED_HIGH)
            p->used_high = p->used;
        else
            p->reserved_high = p->used + p->idle;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void *value) {
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct pool *p = handle_get(HANDLE_POOL, handle);
    CUresult rc = p && value ? get_locked(p, attribute, value) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void *value) {
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct pool *p = handle_get(HANDLE_POOL, handle);
    CUresult rc = p && value ? set_locked(p, attribute, value) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&drv.lock);
    return rc;
}
