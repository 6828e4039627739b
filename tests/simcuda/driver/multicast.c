// SPDX-License-Identifier: Apache-2.0
//
// Multicast objects: memory of several devices behind one address. An object costs nothing, and
// keeps the memory that is bound to it. An unbinding names the memory as the binding did. Writes
// are not simulated: an object can be mapped, but not be made accessible.

#include "vmm.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct binding {
    CUdevice dev;
    uint64_t offset, size;
    struct memory *memory;
    struct binding *next;
};

struct multicast {
    unsigned wanted; // number of devices that it needs
    bool has[MAX_DEV];
    struct binding *bindings;
};

struct multicast_prop {
    unsigned devices;
    size_t size;
    unsigned long long handle_types, flags;
};

static bool whole_pieces(uint64_t n) {
    return n % GRANULARITY == 0;
}

static CUresult check(const struct multicast_prop *p) {
    if (!p || !p->size || !whole_pieces(p->size) || p->flags || !p->devices)
        return CUDA_ERROR_INVALID_VALUE;
    if (p->devices > (unsigned)drv.device_count)
        return CUDA_ERROR_INVALID_VALUE;
    return p->handle_types ? CUDA_ERROR_NOT_SUPPORTED
                           : CUDA_SUCCESS; // objects for export are not simulated
}

EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *out,
                                  const struct multicast_prop *p) {
    ENTER();
    CUresult rc = out ? check(p) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    struct memory *m = calloc(1, sizeof *m);
    struct multicast *group = calloc(1, sizeof *group);
    int fd = memfd_create("simcuda", MFD_CLOEXEC);
    if (!m || !group || fd < 0 || ftruncate(fd, (off_t)p->size) != 0) {
        free(m);
        free(group);
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    group->wanted = p->devices;
    *m = (struct memory){.size = p->size, .phys = -1, .fd = fd, .group = group, .refs = 1};
    pthread_mutex_lock(&drv.lock);
    *out = vmm_enlist(m);
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

bool multicast_is_whole(const struct multicast *group) {
    unsigned has = 0;
    for (int i = 0; i < MAX_DEV; i++)
        has += group->has[i];
    return has == group->wanted;
}

void multicast_end(struct multicast *group) {
    while (group->bindings) {
        struct binding *b = group->bindings;
        group->bindings = b->next;
        vmm_drop_map(b->memory);
        free(b);
    }
    free(group);
}

static struct multicast *group_of(CUmemGenericAllocationHandle object) {
    struct memory *m = vmm_memory(object);
    return m ? m->group : NULL;
}

EXPORT CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle object, CUdevice dev) {
    ENTER();
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&drv.lock);
    struct multicast *group = group_of(object);
    bool can = group && !group->has[dev] && !multicast_is_whole(group);
    if (can)
        group->has[dev] = true;
    pthread_mutex_unlock(&drv.lock);
    return can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUdevice device_of(const struct memory *m) {
    for (CUdevice dev = 0; dev < drv.device_count; dev++)
        if (drv.phys[dev] == m->phys)
            return dev;
    return -1;
}

static bool bound_already(const struct multicast *group, CUdevice dev, uint64_t offset,
                          uint64_t size) {
    for (const struct binding *b = group->bindings; b; b = b->next)
        if (b->dev == dev && offset < b->offset + b->size && b->offset < offset + size)
            return true;
    return false;
}

// Binds memory. dev: device of the call; −1: the memory's device. A real driver waits until all
// devices were added; here that would block the only thread, so the call returns an error. The
// error code for a position that is taken is not documented.
static CUresult bind_locked(CUmemGenericAllocationHandle handle, CUdevice dev, uint64_t offset,
                            struct memory *m, uint64_t from, uint64_t size) {
    struct memory *object = vmm_memory(handle);
    if (!object || !object->group || !m || m->group || !size || !whole_pieces(offset | from | size))
        return CUDA_ERROR_INVALID_VALUE;
    if (size > m->size || from > m->size - size || size > object->size ||
        offset > object->size - size)
        return CUDA_ERROR_INVALID_VALUE;
    CUdevice home = device_of(m);
    if (home < 0 || (dev >= 0 && dev != home) || !object->group->has[home])
        return CUDA_ERROR_INVALID_DEVICE;
    if (!multicast_is_whole(object->group))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (bound_already(object->group, home, offset, size))
        return CUDA_ERROR_INVALID_VALUE;
    struct binding *b = malloc(sizeof *b);
    if (!b)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *b = (struct binding){home, offset, size, m, object->group->bindings};
    object->group->bindings = b;
    m->maps++;
    return CUDA_SUCCESS;
}

static CUresult bind_mem(CUmemGenericAllocationHandle object, CUdevice dev, size_t offset,
                         CUmemGenericAllocationHandle memory, size_t from, size_t size,
                         unsigned long long flags) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = bind_locked(object, dev, offset, vmm_memory(memory), from, size);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset,
                                   CUmemGenericAllocationHandle memory, size_t from, size_t size,
                                   unsigned long long flags) {
    ENTER();
    return bind_mem(object, -1, offset, memory, from, size, flags);
}

EXPORT CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice dev,
                                      size_t offset, CUmemGenericAllocationHandle memory,
                                      size_t from, size_t size, unsigned long long flags) {
    ENTER();
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return bind_mem(object, dev, offset, memory, from, size, flags);
}

// Binds a mapped address. A real driver also binds memory of pools, this simulator does not.
static CUresult bind_addr(CUmemGenericAllocationHandle object, CUdevice dev, size_t offset,
                          CUdeviceptr p, size_t size, unsigned long long flags) {
    uint64_t from = 0;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct memory *m = vmm_mapped(p, &from);
    CUresult rc = !m && block_find(p) ? CUDA_ERROR_NOT_SUPPORTED
                                      : bind_locked(object, dev, offset, m, from, size);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset,
                                    CUdeviceptr p, size_t size, unsigned long long flags) {
    ENTER();
    return bind_addr(object, -1, offset, p, size, flags);
}

EXPORT CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice dev,
                                       size_t offset, CUdeviceptr p, size_t size,
                                       unsigned long long flags) {
    ENTER();
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    return bind_addr(object, dev, offset, p, size, flags);
}

EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice dev, size_t offset,
                                  size_t size) {
    ENTER();
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&drv.lock);
    struct multicast *group = group_of(object);
    struct binding **at = group ? &group->bindings : NULL, *b = NULL;
    while (at && (b = *at) && (b->dev != dev || b->offset != offset || b->size != size))
        at = &b->next;
    if (b) {
        *at = b->next;
        vmm_drop_map(b->memory);
        free(b);
    }
    pthread_mutex_unlock(&drv.lock);
    return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
