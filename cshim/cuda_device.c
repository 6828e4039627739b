// SPDX-License-Identifier: Apache-2.0
#include "cuda_device.h"

#include "cuda_context.h"
#include "cuda_hold.h"
#include "log.h"

bool ga_cuda_device_several(struct ga_root *root) {
    uint32_t count = atomic_load_explicit(&root->device_count, memory_order_relaxed);
    if (GA_UNLIKELY(count == 0)) {
        int devices = 0;
        if (!GA_REAL(cuDeviceGetCount) || GA_REAL(cuDeviceGetCount)(&devices) != GA_CUDA_SUCCESS ||
            devices < 1)
            return true; // not known: the careful way
        count = (uint32_t)devices;
        atomic_store(&root->device_count, count);
    }
    return count != 1;
}

// A device without a UUID goes by its PCI address, as text, zero-padded.
static bool read_identity(ga_cu_device ordinal, uint8_t identity[GA_UUID_SIZE]) {
    struct ga_cu_uuid uuid = {{0}};
    if ((GA_REAL(cuDeviceGetUuid_v2) &&
         GA_REAL(cuDeviceGetUuid_v2)(&uuid, ordinal) == GA_CUDA_SUCCESS) ||
        (GA_REAL(cuDeviceGetUuid) && GA_REAL(cuDeviceGetUuid)(&uuid, ordinal) == GA_CUDA_SUCCESS)) {
        ga_os_copy(identity, uuid.bytes, GA_UUID_SIZE);
        return true;
    }
    char pci[32] = "";
    if (!GA_REAL(cuDeviceGetPCIBusId) ||
        GA_REAL(cuDeviceGetPCIBusId)(pci, sizeof pci, ordinal) != GA_CUDA_SUCCESS)
        return false;
    ga_os_copy(identity, pci, GA_UUID_SIZE);
    return true;
}

// What the program wants to have of it at most, whatever a daemon says.
static void declare(struct ga_root *root, ga_cu_device ordinal) {
    uint64_t most = root->env.memory;
    size_t total = 0;
    if (root->env.memory_mill != 0 && GA_REAL(cuDeviceTotalMem_v2) &&
        GA_REAL(cuDeviceTotalMem_v2)(&total, ordinal) == GA_CUDA_SUCCESS)
        most = (uint64_t)total / 1000 * root->env.memory_mill +
               (uint64_t)total % 1000 * root->env.memory_mill / 1000;
    if (most != GA_NO_LIMIT)
        atomic_store(&root->declared[ordinal], most + 1);
}

bool ga_cuda_device_know(struct ga_root *root, ga_cu_device ordinal) {
    if (ordinal < 0 || ordinal >= (int)GA_DEVICES)
        return false;
    struct ga_device *d = &root->devices[ordinal];
    if (atomic_load_explicit(&d->known, memory_order_acquire))
        return true;
    uint8_t identity[GA_UUID_SIZE];
    if (!read_identity(ordinal, identity)) {
        ga_log("device %d has neither a UUID nor a PCI address", (int64_t)ordinal);
        return false;
    }
    // Threads that come here together write the same bytes.
    ga_os_copy(d->uuid, identity, sizeof identity);
    declare(root, ordinal);
    atomic_store_explicit(&d->known, 1, memory_order_release);
    return true;
}

int ga_cuda_device_at(struct ga_root *root, const struct ga_cu_location *at) {
    uint64_t context;
    if (at->type > GA_CUDA_LOCATION_DOMAIN)
        return ga_cuda_device_current(root, &context);
    if (at->type != GA_CUDA_LOCATION_DEVICE && at->type != GA_CUDA_LOCATION_DOMAIN)
        return -1;
    int device = at->type == GA_CUDA_LOCATION_DOMAIN ? at->id & 0xff : at->id;
    return ga_cuda_device_know(root, device) ? device : -1;
}

GA_NOINLINE int ga_cuda_device_find(struct ga_root *root, ga_context context, uint64_t *home) {
    ga_cu_device ordinal = -1;
    uint64_t epoch = atomic_load(&root->context_epoch);
    if (!GA_REAL(cuCtxGetDevice) || GA_REAL(cuCtxGetDevice)(&ordinal) != GA_CUDA_SUCCESS ||
        !ga_cuda_device_know(root, ordinal))
        return -1;
    ga_cuda_device_several(root);
    // Made current out of our sight. Refused, what the thread asks for next will be, too.
    ga_cuda_hold_context(root, context);
    *home = ga_cuda_context_notice(root, context, (uint32_t)ordinal, GA_CUDA_CONTEXT_SEEN);
    ga_self.context = (uint64_t)(uintptr_t)context;
    ga_self.home = *home;
    ga_self.context_epoch = epoch;
    ga_self.device = (uint32_t)ordinal;
    return ordinal;
}

int ga_cuda_device_of_stream(struct ga_root *root, ga_stream stream, uint64_t *context) {
    int current = ga_cuda_device_current(root, context);
    if ((uintptr_t)stream <= (uintptr_t)GA_CUDA_STREAM_PER_THREAD || !ga_cuda_device_several(root))
        return current;
    struct ga_entry entry;
    ga_self_enter();
    bool found = ga_table_find(&root->streams, (uint64_t)(uintptr_t)stream, &entry);
    ga_self_leave();
    if (!found)
        return current;
    *context = entry.context;
    return entry.device;
}
