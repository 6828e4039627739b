// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: device memory without an address, addresses without memory, and
// mappings between them. A handle's memory is taken when it is created and given back when the
// handle has been released as often as it was retained and nothing maps it any more.

#include "driver.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULARITY (2ull << 20)
#define EXPORT_MAGIC 0x6d656d756469736cull

enum { HANDLE_TYPE_FD = 1 };
enum { LOCATION_HOST = 2, LOCATION_HOST_NUMA, LOCATION_HOST_NUMA_CURRENT };

// Lies behind the bytes in what backs them, for who gets the descriptor.
struct label {
    uint64_t magic, size;
    int32_t phys, pad;
};

struct memory {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    uint64_t size;
    int phys;      // -1: host memory
    int fd;        // what backs it, so that a second mapping shows the same bytes
    bool imported; // another process has it
    unsigned refs, maps;
};

struct reservation {
    CUdeviceptr base;
    uint64_t size;
    struct reservation *next;
};

struct mapping {
    CUdeviceptr base;
    uint64_t size;
    struct memory *memory;
    bool accessible;
    struct mapping *next;
};

// Under drv.lock.
static struct reservation *reservations;
static struct mapping *mappings;

static bool multiple(uint64_t n) {
    return n && n % GRANULARITY == 0;
}

// Every host is one NUMA node.
static CUresult check_prop(const CUmemAllocationProp *prop) {
    enum { PINNED = 1 };
    if (!prop || prop->type != PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & ~HANDLE_TYPE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    switch (prop->location.type) {
    case LOCATION_DEVICE:
    case LOCATION_DOMAIN:
        return dev_at(&prop->location) >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case LOCATION_HOST_NUMA:
        return prop->location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case LOCATION_HOST:
    case LOCATION_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

// False: there is not so much.
static bool take(int phys, uint64_t size) {
    if (phys >= 0)
        return size <= sim_capacity(drv.sim, phys) &&
               sim_take(drv.sim, drv.me, phys, mem_cost(size));
    host_count((int64_t)size);
    return true;
}

static void give(int phys, uint64_t size) {
    if (phys >= 0)
        sim_give(drv.sim, drv.me, phys, mem_cost(size));
    else
        host_count(-(int64_t)size);
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
                                              int option) {
    ENTER();
    if (!out || option < 0 || option > 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = check_prop(prop);
    if (!rc)
        *out = GRANULARITY;
    return rc;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags) {
    ENTER();
    if (!out || !multiple(size) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = check_prop(prop);
    if (rc)
        return rc;
    int phys = on_device(&prop->location) ? drv.phys[dev_at(&prop->location)] : -1;
    if (phys >= 0 && (rc = dev_lost(phys)))
        return rc;
    mem_delay();
    struct memory *m = calloc(1, sizeof *m);
    if (!m || !take(phys, size)) {
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *m = (struct memory){.prop = *prop, .size = size, .phys = phys, .refs = 1};
    const struct label label = {EXPORT_MAGIC, size, phys, 0};
    m->fd = memfd_create("simcuda", MFD_CLOEXEC);
    if (m->fd < 0 || pwrite(m->fd, &label, sizeof label, (off_t)size) != sizeof label) {
        if (m->fd >= 0)
            close(m->fd);
        free(m);
        give(phys, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&drv.lock);
    m->handle = handle_new(HANDLE_MEMORY, m);
    *out = m->handle;
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

static void end_if_unused(struct memory *m) {
    if (m->refs || m->maps)
        return;
    if (!m->imported)
        give(m->phys, m->size);
    close(m->fd);
    handle_recycle(m->handle);
    free(m);
}

EXPORT CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                             int type, unsigned long long flags) {
    ENTER();
    if (!out || type != HANDLE_TYPE_FD || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct memory *m = handle_get(HANDLE_MEMORY, handle);
    bool can = m && (m->prop.requestedHandleTypes & type);
    int fd = can ? fcntl(m->fd, F_DUPFD_CLOEXEC, 0) : -1;
    pthread_mutex_unlock(&drv.lock);
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

// The bytes are the same, and the owner's: they come back when that one lets go, whoever maps them.
EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle,
                                               int type) {
    struct stat st;
    struct label label;
    ENTER();
    int fd = (int)(intptr_t)os_handle;
    if (!out || type != HANDLE_TYPE_FD || fstat(fd, &st) != 0 ||
        pread(fd, &label, sizeof label, st.st_size - (off_t)sizeof label) != sizeof label ||
        label.magic != EXPORT_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    struct memory *m = calloc(1, sizeof *m);
    if (!m || (fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0) {
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *m = (struct memory){.prop = {.type = 1, .requestedHandleTypes = HANDLE_TYPE_FD},
                         .size = label.size,
                         .phys = label.phys,
                         .fd = fd,
                         .imported = true,
                         .refs = 1};
    pthread_mutex_lock(&drv.lock);
    *out = m->handle = handle_new(HANDLE_MEMORY, m);
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct memory *m = handle_get(HANDLE_MEMORY, handle);
    if (m && --m->refs == 0) {
        handle_end(handle); // what maps it still can have it back
        end_if_unused(m);
    }
    pthread_mutex_unlock(&drv.lock);
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out,
                                                       CUmemGenericAllocationHandle handle) {
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct memory *m = handle_get(HANDLE_MEMORY, handle);
    if (m && out)
        *out = m->prop;
    pthread_mutex_unlock(&drv.lock);
    return m && out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment,
                                    CUdeviceptr hint, unsigned long long flags) {
    ENTER();
    if (!out || !multiple(size) || (alignment & (alignment - 1)) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t align = alignment > GRANULARITY ? alignment : GRANULARITY, room;
    struct reservation *r = malloc(sizeof *r);
    if (!r || __builtin_add_overflow(size, align, &room)) {
        free(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    char *p = mmap((void *)(uintptr_t)hint, room, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        free(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    // The ends that only served the alignment go back.
    size_t head = (size_t)(-(uintptr_t)p & (align - 1));
    if (head)
        munmap(p, head);
    if (room - size - head)
        munmap(p + head + size, room - size - head);
    *r = (struct reservation){(CUdeviceptr)(uintptr_t)(p + head), size, NULL};
    *out = r->base;
    pthread_mutex_lock(&drv.lock);
    r->next = reservations;
    reservations = r;
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

static bool overlaps_mapping(CUdeviceptr p, uint64_t size) {
    for (struct mapping *m = mappings; m; m = m->next)
        if (p < m->base + m->size && m->base < p + size)
            return true;
    return false;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr p, size_t size) {
    ENTER();
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    for (struct reservation **q = &reservations; *q; q = &(*q)->next) {
        struct reservation *r = *q;
        if (r->base != p || r->size != size || overlaps_mapping(p, size))
            continue;
        *q = r->next;
        munmap((void *)(uintptr_t)p, size);
        free(r);
        rc = CUDA_SUCCESS;
        break;
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static bool reserved(CUdeviceptr p, uint64_t size) {
    for (struct reservation *r = reservations; r; r = r->next)
        if (p >= r->base && size <= r->size && p - r->base <= r->size - size)
            return true;
    return false;
}

static CUresult map_locked(CUdeviceptr p, uint64_t size, struct memory *m) {
    if (!m || size > m->size || !reserved(p, size) || overlaps_mapping(p, size))
        return CUDA_ERROR_INVALID_VALUE;
    struct mapping *n = malloc(sizeof *n);
    if (!n || mmap((void *)(uintptr_t)p, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                   m->fd, 0) == MAP_FAILED) {
        free(n);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *n = (struct mapping){p, size, m, false, mappings};
    mappings = n;
    m->maps++;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
    ENTER();
    if (!p || p % GRANULARITY || !multiple(size) || offset || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = map_locked(p, size, handle_get(HANDLE_MEMORY, handle));
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

// Whole mappings alone, and no gap between them.
static bool covered(CUdeviceptr p, uint64_t size) {
    uint64_t sum = 0;
    for (struct mapping *m = mappings; m; m = m->next) {
        if (m->base >= p + size || p >= m->base + m->size)
            continue;
        if (m->base < p || m->base + m->size > p + size)
            return false;
        sum += m->size;
    }
    return sum == size;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t size) {
    ENTER();
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    if (size && covered(p, size)) {
        if (mmap((void *)(uintptr_t)p, size, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
            pthread_mutex_unlock(&drv.lock);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        for (struct mapping **q = &mappings; *q;) {
            struct mapping *m = *q;
            if (m->base < p || m->base >= p + size) {
                q = &m->next;
                continue;
            }
            *q = m->next;
            m->memory->maps--;
            end_if_unused(m->memory);
            free(m);
        }
        rc = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc *access,
                               size_t count) {
    enum { NONE = 0, READ = 1, READ_WRITE = 3 };
    ENTER();
    if (!access || !count || !size)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (access[i].flags != NONE && access[i].flags != READ && access[i].flags != READ_WRITE)
            return CUDA_ERROR_INVALID_VALUE;
        else if (!dev_valid(access[i].location.id))
            return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&drv.lock);
    bool known = covered(p, size);
    for (struct mapping *m = mappings; m && known; m = m->next)
        if (m->base >= p && m->base < p + size)
            m->accessible = access[0].flags != NONE;
    pthread_mutex_unlock(&drv.lock);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct mapping *mapping_of(CUdeviceptr p) {
    for (struct mapping *m = mappings; m; m = m->next)
        if (p >= m->base && p - m->base < m->size)
            return m;
    return NULL;
}

EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                               CUdeviceptr p) {
    ENTER();
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct mapping *m = mapping_of(p);
    if (m)
        *flags = m->accessible ? 3 : 0;
    pthread_mutex_unlock(&drv.lock);
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address) {
    ENTER();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct mapping *m = mapping_of((CUdeviceptr)(uintptr_t)address);
    if (m) {
        if (m->memory->refs++ == 0)
            handle_restore(HANDLE_MEMORY, (uintptr_t)m->memory->handle, m->memory);
        *out = m->memory->handle;
    }
    pthread_mutex_unlock(&drv.lock);
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool vmm_accessible(CUdeviceptr p, uint64_t size) {
    for (uint64_t done = 0; done < size;) {
        struct mapping *m = mapping_of(p + done);
        if (!m || !m->accessible)
            return false;
        done = m->base + m->size - p;
    }
    return size > 0;
}

bool vmm_find(CUdeviceptr p, struct range *out) {
    struct mapping *m = mapping_of(p);
    if (m)
        *out = (struct range){m->base, m->size, m->memory->phys};
    return m != NULL;
}
