// SPDX-License-Identifier: Apache-2.0
// Wrappers for memory that has a handle and is mapped (vmm.h). memory/mapped.c counts its uses and
// charges it.
#include "cuda/vmm.h"

#include "cuda/device.h"
#include "memory/mapped.h"

// Reserves the bytes of memory that the program makes. False: refused. True: *m is its record,
// unless c->root is NULL: then the memory is not accounted for.
static bool open_allocation(struct ga_allocation *c, struct ga_memory_mapped **m, uint64_t bytes,
                            const struct ga_cu_memory_properties *properties) {
    c->root = NULL;
    c->entry = (struct ga_entry){.bytes = bytes, .kind = GA_MEMORY_PLAIN};
    if (bytes == 0 || !ga_allocation_begin(c))
        return bytes == 0;
    bool host = properties && ga_cuda_in_host(properties->location.type);
    int device = -1;
    if (c->root && properties && !host)
        device = ga_cuda_device_at(c->root, &properties->location);
    if (c->root && (host ? bytes <= GA_CREDIT_LIMIT : device >= 0)) // no host has more memory
        return ga_memory_mapped_open(c, m, host, device);
    c->root = NULL;
    return true;
}

// Makes the driver release memory for whose entry there is no memory.
static ga_result unrecorded(const struct ga_allocation *c, struct ga_memory_mapped *m,
                            ga_memory handle) {
    bool keeps = GA_REAL(cuMemRelease)(handle) != GA_CUDA_SUCCESS;
    ga_memory_mapped_undo(c, m, keeps);
    return keeps ? GA_CUDA_SUCCESS : GA_CUDA_OUT_OF_MEMORY;
}

ga_result ga_cuda_vmm_create(GA_FN_cuMemCreate *real, ga_memory *handle, size_t bytes,
                             const struct ga_cu_memory_properties *properties, uint64_t flags) {
    struct ga_allocation c = {.full = 0};
    struct ga_memory_mapped *m = NULL;
    ga_result result;
    bool on_host = properties && ga_cuda_in_host(properties->location.type);
    do {
        if (!open_allocation(&c, &m, bytes, properties))
            return GA_CUDA_OUT_OF_MEMORY;
        result = real(handle, bytes, properties, flags);
        if (!c.root || (result == GA_CUDA_SUCCESS && ga_memory_mapped_made(&c, m, *handle)))
            return result;
        if (result == GA_CUDA_SUCCESS)
            return unrecorded(&c, m, *handle);
        ga_memory_mapped_undo(&c, m, false);
    } while (ga_admit_again(c.root, &c.full, result == GA_CUDA_OUT_OF_MEMORY && !on_host));
    return result;
}

// Returns the number of the device that a handle's memory is on. −1: host memory, or a device that
// is not arbitrated. If the driver cannot report it, the current device is assumed.
static int device_of(struct ga_root *root, ga_memory handle) {
    struct ga_cu_memory_properties_buffer room = {.properties = {0}};
    uint64_t context;
    if (GA_ASK(cuMemGetAllocationPropertiesFromHandle, &room, handle))
        return ga_cuda_in_host(room.properties.location.type)
                   ? -1
                   : ga_cuda_device_at(root, &room.properties.location);
    return ga_cuda_device_current(root, &context);
}

ga_result ga_cuda_vmm_imported(ga_result result, const ga_memory *handle) {
    struct ga_root *root = result == GA_CUDA_SUCCESS && handle ? ga_root_get() : NULL;
    if (root)
        ga_memory_mapped_imported(root, *handle, device_of(root, *handle));
    return result;
}

ga_result ga_cuda_vmm_release(GA_FN_cuMemRelease *real, ga_memory handle) {
    struct ga_root *root = ga_root_get();
    struct ga_memory_mapped *m = root ? ga_memory_mapped_release(root, handle) : NULL;
    ga_result result = real(handle);
    if (m && result == GA_CUDA_SUCCESS)
        ga_memory_mapped_drop(root, m, 1);
    else if (m)
        ga_memory_mapped_refer(root, handle, m);
    return result;
}

ga_result ga_cuda_vmm_retain(GA_FN_cuMemRetainAllocationHandle *real, ga_memory *handle,
                             void *address) {
    struct ga_root *root = ga_root_get();
    struct ga_memory_mapped *m =
        root ? ga_memory_mapped_at(root, (uint64_t)(uintptr_t)address) : NULL;
    ga_result result = real(handle, address);
    if (m && result == GA_CUDA_SUCCESS)
        ga_memory_mapped_refer(root, *handle, m);
    else if (m)
        ga_memory_mapped_drop(root, m, 1);
    return result;
}

ga_result ga_cuda_vmm_map(GA_FN_cuMemMap *real, ga_address address, size_t bytes, size_t offset,
                          ga_memory handle, uint64_t flags) {
    struct ga_root *root = ga_root_get();
    struct ga_memory_mapped *m = root ? ga_memory_mapped_use(root, handle) : NULL;
    ga_result result = real(address, bytes, offset, handle, flags);
    if (root && result == GA_CUDA_SUCCESS)
        ga_memory_mapped_map(root, m, address, bytes, offset);
    else if (m)
        ga_memory_mapped_drop(root, m, 1);
    return result;
}

ga_result ga_cuda_vmm_unmap(GA_FN_cuMemUnmap *real, ga_address address, size_t bytes) {
    struct ga_root *root = ga_root_get();
    ga_result result = real(address, bytes);
    if (root && result == GA_CUDA_SUCCESS)
        ga_memory_mapped_unmap(root, address, bytes);
    return result;
}
