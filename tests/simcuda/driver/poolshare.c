// SPDX-License-Identifier: Apache-2.0
//
// Pools that are exported to other processes, and made accessible to other devices. A pool is
// exported by descriptor, a block of it by 64 bytes that identify it. An imported block costs the
// importer nothing while its owner exists, and is freed like other blocks of a pool. Its bytes are
// not available here: copies return 801.
//
// Refused here: imports in the owner's own process, which driver 580 allows, and exports of
// imported pools, which driver 580 refuses. Memory that only a descriptor keeps is not simulated.

#include "pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POOL_MAGIC 0x6c6f6f706d697331ull
#define POINTER_MAGIC 0x72746e696f706d31ull

struct pool_label {
    uint64_t magic, owner, pool;
    int64_t phys;
};

typedef struct {
    uint64_t magic, owner, pool, id, size;
    uint64_t reserved[3];
} CUmemPoolPtrExportData;
_Static_assert(sizeof(CUmemPoolPtrExportData) == 64, "of its size in cuda.h");

static bool device_visible(int phys) {
    for (int i = 0; i < drv.device_count; i++)
        if (drv.phys[i] == phys)
            return true;
    return false;
}

EXPORT CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool handle, int type,
                                                 unsigned long long flags) {
    ENTER();
    if (!out || type != POOL_HANDLE_FD || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct pool *p = handle_get(HANDLE_POOL, handle);
    bool can = p && p->exportable;
    struct pool_label label = {POOL_MAGIC, drv.me->serial, handle, can ? p->phys : 0};
    pthread_mutex_unlock(&drv.lock);
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = memfd_create("simcuda-pool", MFD_CLOEXEC);
    if (fd < 0 || write(fd, &label, sizeof label) != sizeof label) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *os_handle, int type,
                                                   unsigned long long flags) {
    struct pool_label label;
    ENTER();
    if (!out || type != POOL_HANDLE_FD || flags ||
        pread((int)(intptr_t)os_handle, &label, sizeof label, 0) != sizeof label ||
        label.magic != POOL_MAGIC || label.owner == drv.me->serial ||
        !foreign_owner_lives(label.owner))
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_visible((int)label.phys))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&drv.lock);
    struct pool *p = pool_new((int)label.phys);
    if (p) {
        p->imported = true;
        p->owner = label.owner;
        p->original = label.pool;
        *out = p->handle;
    }
    pthread_mutex_unlock(&drv.lock);
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr p) {
    ENTER();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct block *b = block_find(p);
    bool can = b && b->pool && b->pool->exportable && !b->freeing;
    if (can)
        *out = (CUmemPoolPtrExportData){
            .magic = POINTER_MAGIC, .owner = drv.me->serial, .id = b->id, .size = b->size};
    if (can)
        out->pool = b->pool->handle;
    pthread_mutex_unlock(&drv.lock);
    return can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct block *import_locked(struct context *ctx, struct pool *p,
                                   const CUmemPoolPtrExportData *data) {
    struct block *b = foreign_block(ctx, data->size, p->phys);
    const struct sim_loan loan = {
        .owner = p->owner, .object = data->id, .bytes = data->size, .dev = p->phys};
    if (!b)
        return NULL;
    if (!sim_borrow(drv.sim, drv.me, &loan)) {
        block_drop(b);
        return NULL;
    }
    b->pool = p;
    b->foreign_id = data->id;
    p->blocks++;
    p->used += b->size; // the pool's attributes show the imported bytes
    pool_note_high(p);
    return b;
}

// A block that is imported again gets a second address.
EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool handle,
                                       const CUmemPoolPtrExportData *data) {
    ENTER_CTX(ctx);
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    if (!out || !data || data->magic != POINTER_MAGIC)
        return rc;
    pthread_mutex_lock(&drv.lock);
    struct pool *p = handle_get(HANDLE_POOL, handle);
    if (p && p->imported && p->owner == data->owner && p->original == data->pool &&
        foreign_owner_lives(p->owner)) {
        struct block *b = import_locked(ctx, p, data);
        rc = b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (b)
            *out = b->base;
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

void pool_return(struct pool *p, const struct block *b) {
    p->used -= b->size;
    sim_return(drv.sim, drv.me, p->owner, b->foreign_id);
}

enum { ACCESS_NONE = 0, ACCESS_READ = 1, ACCESS_READ_WRITE = 3 };

// Sets access for all entries or for none. The access of a pool's own device cannot be removed:
// that is documented, the error code is not.
static CUresult show_locked(struct pool *p, const CUmemAccessDesc *map, size_t count) {
    uint32_t shown = p->shown_to;
    for (size_t i = 0; i < count; i++) {
        CUdevice dev = map[i].location.id;
        if (map[i].location.type != 1 ||
            (map[i].flags != ACCESS_NONE && map[i].flags != ACCESS_READ_WRITE))
            return CUDA_ERROR_INVALID_VALUE;
        if (!dev_valid(dev))
            return CUDA_ERROR_INVALID_DEVICE;
        if (drv.phys[dev] == p->phys && map[i].flags == ACCESS_NONE)
            return CUDA_ERROR_INVALID_DEVICE;
        uint32_t bit = 1u << drv.phys[dev];
        shown = map[i].flags ? shown | bit : shown & ~bit;
    }
    p->shown_to = shown;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct pool *p = handle_get(HANDLE_POOL, handle);
    CUresult rc =
        p && map && count && p->phys >= 0 ? show_locked(p, map, count) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool handle, const CUmemLocation *location) {
    ENTER();
    if (!flags || !location || location->type != 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(location->id))
        return CUDA_ERROR_INVALID_DEVICE;
    int phys = drv.phys[location->id];
    pthread_mutex_lock(&drv.lock);
    struct pool *p = handle_get(HANDLE_POOL, handle);
    if (p)
        *flags = p->phys == phys || (p->shown_to & (1u << phys)) ? ACCESS_READ_WRITE : ACCESS_NONE;
    pthread_mutex_unlock(&drv.lock);
    return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
