// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: device memory without an address, addresses without memory, and
// mappings between them. A handle's memory is taken when it is created. It is given back when the
// handle was released as often as it was retained, and no mapping is left.

#include "vmm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT_MAGIC 0x6d656d756469736cull

enum { HANDLE_TYPE_FD = 1, HANDLE_TYPE_FABRIC = 8 };
enum { LOCATION_HOST = 2, LOCATION_HOST_NUMA, LOCATION_HOST_NUMA_CURRENT };

// Stored after the bytes of the memory file, for the importer of the descriptor.
struct label {
    uint64_t magic, size, owner, object;
    int32_t phys;
    uint32_t ended; // the owner has released it
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
static struct memory *memories;

static _Atomic uint64_t next_object = 1ull << 63; // differs from the ids of blocks

static bool multiple(uint64_t n) {
    return n && n % GRANULARITY == 0;
}

// Checks properties. The host is one NUMA node here.
static CUresult check_prop(const CUmemAllocationProp *prop) {
    enum { PINNED = 1 };
    if (!prop || prop->type != PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->usage & ~MEM_TILE_POOL)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & ~(HANDLE_TYPE_FD | HANDLE_TYPE_FABRIC))
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

// Takes bytes of a device. False: too little memory.
static bool take(int phys, uint64_t size) {
    if (phys >= 0)
        return size <= sim_capacity(drv.sim, phys) &&
               sim_take(drv.sim, drv.me, phys, mem_cost(size));
    host_count((int64_t)size);
    return true;
}

static void give(const struct memory *m) {
    if (m->phys < 0)
        host_count(-(int64_t)m->size);
    else
        sim_give_imported(drv.sim, drv.me, m->phys, mem_cost(m->size), m->object);
}

static bool write_label(const struct memory *m, uint32_t ended) {
    const struct label label = {EXPORT_MAGIC, m->size, m->owner, m->object, m->phys, ended};
    return pwrite(m->fd, &label, sizeof label, (off_t)m->size) == sizeof label;
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

CUmemGenericAllocationHandle vmm_enlist(struct memory *m) {
    m->next = memories;
    m->at = &memories;
    if (memories)
        memories->at = &m->next;
    memories = m;
    return m->handle = handle_new(HANDLE_MEMORY, m);
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
    *m = (struct memory){.prop = *prop,
                         .size = size,
                         .phys = phys,
                         .owner = drv.me->serial,
                         .object = atomic_fetch_add(&next_object, 1),
                         .refs = 1};
    m->fd = memfd_create("simcuda", MFD_CLOEXEC);
    if (m->fd < 0 || !write_label(m, 0)) {
        if (m->fd >= 0)
            close(m->fd);
        give(m);
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&drv.lock);
    *out = vmm_enlist(m);
    pthread_mutex_unlock(&drv.lock);
    return CUDA_SUCCESS;
}

static void end_if_unused(struct memory *m) {
    if (m->refs || m->maps)
        return;
    *m->at = m->next;
    if (m->next)
        m->next->at = m->at;
    if (m->group) {
        multicast_end(m->group);
    } else if (m->imported) {
        sim_return(drv.sim, drv.me, m->owner, m->object);
    } else {
        write_label(m, 1);
        give(m);
    }
    close(m->fd);
    handle_recycle(m->handle);
    free(m);
}

// Names the memory file of the owner: all processes are on one machine, and of one user.
struct fabric_handle {
    uint64_t magic, object;
    int32_t pid, fd;
    uint64_t reserved[5];
};
_Static_assert(sizeof(struct fabric_handle) == 64, "of its size in cuda.h");

static CUresult export_locked(const struct memory *m, int type, void *out) {
    if (type == HANDLE_TYPE_FABRIC) {
        *(struct fabric_handle *)out = (struct fabric_handle){
            .magic = EXPORT_MAGIC, .object = m->object, .pid = drv.me->pid, .fd = m->fd};
        return CUDA_SUCCESS;
    }
    int fd = fcntl(m->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                             int type, unsigned long long flags) {
    ENTER();
    if (!out || (type != HANDLE_TYPE_FD && type != HANDLE_TYPE_FABRIC) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct memory *m = handle_get(HANDLE_MEMORY, handle);
    bool can = m && (m->prop.requestedHandleTypes & type);
    CUresult rc = can ? export_locked(m, type, out) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static bool read_label(int fd, struct label *label) {
    struct stat st;
    return fstat(fd, &st) == 0 &&
           pread(fd, label, sizeof *label, st.st_size - (off_t)sizeof *label) == sizeof *label &&
           label->magic == EXPORT_MAGIC;
}

// Borrows another process's memory. The owner must still have it: memory that only a descriptor
// keeps is not simulated.
static bool borrow(const struct label *l) {
    const struct sim_loan loan = {
        .owner = l->owner, .object = l->object, .bytes = l->size, .dev = l->phys};
    return l->phys < 0 ||
           (!l->ended && foreign_owner_lives(l->owner) && sim_borrow(drv.sim, drv.me, &loan));
}

// Imports memory of this process itself: returns its handle with another reference. If all handles
// were released, the memory is imported like another process's. The behaviour of real drivers is
// not documented.
static bool again_locked(const struct label *l, CUmemGenericAllocationHandle *out) {
    for (struct memory *m = memories; m; m = m->next)
        if (!m->imported && m->refs && m->object == l->object && l->owner == drv.me->serial) {
            m->refs++;
            *out = m->handle;
            return true;
        }
    return false;
}

// Makes the record of imported memory, which uses the owner's bytes.
static struct memory *import_locked(const struct label *l, int fd, int type) {
    struct memory *m = calloc(1, sizeof *m);
    if (!m || (fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0) {
        free(m);
        return NULL;
    }
    if (!borrow(l)) {
        close(fd);
        free(m);
        return NULL;
    }
    CUmemLocation at = {.type = l->phys < 0 ? LOCATION_HOST_NUMA : LOCATION_DEVICE};
    while (l->phys >= 0 && at.id < drv.device_count && drv.phys[at.id] != l->phys)
        at.id++;
    *m = (struct memory){.prop = {.type = 1, .requestedHandleTypes = type, .location = at},
                         .size = l->size,
                         .phys = l->phys,
                         .fd = fd,
                         .imported = true,
                         .owner = l->owner,
                         .object = l->object,
                         .refs = 1};
    return m;
}

static CUresult import_from(int fd, int type, uint64_t object, CUmemGenericAllocationHandle *out) {
    struct label label;
    if (!read_label(fd, &label) || (object && object != label.object))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    bool done = again_locked(&label, out);
    struct memory *m = done ? NULL : import_locked(&label, fd, type);
    if (m)
        *out = vmm_enlist(m);
    pthread_mutex_unlock(&drv.lock);
    return done || m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult import_fabric(const struct fabric_handle *h, CUmemGenericAllocationHandle *out) {
    char path[64];
    if (!h || h->magic != EXPORT_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)h->pid, (int)h->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = import_from(fd, HANDLE_TYPE_FABRIC, h->object, out);
    close(fd);
    return rc;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle,
                                               int type) {
    ENTER();
    if (out && type == HANDLE_TYPE_FABRIC)
        return import_fabric(os_handle, out);
    if (!out || type != HANDLE_TYPE_FD)
        return CUDA_ERROR_INVALID_VALUE;
    return import_from((int)(intptr_t)os_handle, type, 0, out);
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct memory *m = handle_get(HANDLE_MEMORY, handle);
    if (m && --m->refs == 0) {
        handle_end(HANDLE_MEMORY, handle); // mapped memory can get a new handle
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
    // Unmaps the ends, which only served the alignment.
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
    if (m && m->group && !multicast_is_whole(m->group))
        return CUDA_ERROR_NOT_SUPPORTED; // a real driver waits until all devices are added
    if (!m || size > m->size || !reserved(p, size) || overlaps_mapping(p, size))
        return CUDA_ERROR_INVALID_VALUE;
    if (size < m->size)
        return CUDA_ERROR_NOT_SUPPORTED; // only as a whole
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

// Reports whether a range consists of whole mappings without gaps.
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
    // An unmapped range needs no work, and succeeds.
    if (size && (covered(p, size) || (reserved(p, size) && !overlaps_mapping(p, size)))) {
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
    bool known = covered(p, size), group = false;
    for (struct mapping *m = mappings; m && known; m = m->next)
        if (m->base >= p && m->base < p + size) {
            group = group || m->memory->group;
            m->accessible = access[0].flags != NONE && !m->memory->group;
        }
    pthread_mutex_unlock(&drv.lock);
    if (known && group)
        return CUDA_ERROR_NOT_SUPPORTED;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct mapping *mapping_of(CUdeviceptr p) {
    for (struct mapping *m = mappings; m; m = m->next)
        if (p >= m->base && p - m->base < m->size)
            return m;
    return NULL;
}

struct memory *vmm_memory(CUmemGenericAllocationHandle handle) {
    return handle_get(HANDLE_MEMORY, handle);
}

struct memory *vmm_mapped(CUdeviceptr p, uint64_t *offset) {
    struct mapping *m = mapping_of(p);
    if (m)
        *offset = p - m->base;
    return m ? m->memory : NULL;
}

void vmm_drop_map(struct memory *m) {
    m->maps--;
    end_if_unused(m);
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
