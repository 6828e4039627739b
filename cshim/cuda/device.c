// SPDX-License-Identifier: Apache-2.0
// Finds devices and their numbers (device.h), and reads the identity of a device from the driver.
#include "cuda/device.h"

#include "core/device.h"
#include "core/log.h"
#include "cuda/state.h"

_Atomic(ga_cuda_device_first_use *) ga_cuda_device_first_use_function;

bool ga_cuda_device_several(struct ga_root *root) {
    uint32_t count = atomic_load_explicit(&ga_cuda(root)->device_count, memory_order_relaxed);
    if (GA_UNLIKELY(count == 0)) {
        int devices = 0;
        if (!GA_ASK(cuDeviceGetCount, &devices) || devices < 1)
            return true; // not known: assume several
        count = (uint32_t)devices;
        atomic_store(&ga_cuda(root)->device_count, count);
    }
    return count != 1;
}

// Reads the identity of a device: its UUID, or else its PCI address as text, padded with zeros.
static bool read_identity(ga_cu_device ordinal, uint8_t identity[GA_UUID_SIZE]) {
    struct ga_cu_uuid uuid = {{0}};
    if (GA_ASK(cuDeviceGetUuid_v2, &uuid, ordinal) || GA_ASK(cuDeviceGetUuid, &uuid, ordinal)) {
        ga_os_copy(identity, uuid.bytes, GA_UUID_SIZE);
        return true;
    }
    char pci[32] = "";
    if (!GA_ASK(cuDeviceGetPCIBusId, pci, sizeof pci, ordinal))
        return false;
    ga_os_copy(identity, pci, GA_UUID_SIZE);
    return true;
}

// Returns the size of a device's memory in bytes; 0: not known.
static uint64_t total_of(ga_cu_device ordinal) {
    size_t total = 0;
    if (!GA_ASK(cuDeviceTotalMem_v2, &total, ordinal))
        return 0;
    return total;
}

int ga_cuda_device_number(struct ga_root *root, ga_cu_device ordinal) {
    uint8_t identity[GA_UUID_SIZE];
    if (ordinal < 0)
        return -1;
    if (ordinal >= (int)GA_DEVICES) {
        if (read_identity(ordinal, identity)) // the driver has such a device
            ga_device_unheld();
        return -1;
    }
    _Atomic uint8_t *known = &ga_cuda(root)->numbers[ordinal];
    int number = atomic_load_explicit(known, memory_order_acquire) - 1;
    if (GA_LIKELY(number >= 0))
        return number;
    if (!read_identity(ordinal, identity)) {
        ga_log("device %d has neither a UUID nor a PCI address", (int64_t)ordinal);
        return -1;
    }
    // Several threads may run this at the same time: all of them store the same values.
    number = ga_device_number(root, identity);
    if (number < 0)
        return -1;
    if (number != ordinal)
        ga_log("CUDA's device %d is device %d below", (int64_t)ordinal, (int64_t)number);
    ga_device_declare(root, (uint32_t)number, root->env.hello.share ? total_of(ordinal) : 0);
    atomic_store(&ga_cuda(root)->ordinals[number], (uint8_t)(ordinal + 1));
    atomic_store_explicit(known, (uint8_t)(number + 1), memory_order_release);
    return number;
}

ga_cu_device ga_cuda_device_ordinal(struct ga_root *root, uint32_t device) {
    return atomic_load(&ga_cuda(root)->ordinals[device]) - 1;
}

int ga_cuda_device_at(struct ga_root *root, const struct ga_cu_location *at) {
    uint64_t serial;
    if (at->type > GA_CUDA_LOCATION_DOMAIN)
        return ga_cuda_device_current(root, &serial);
    if (at->type != GA_CUDA_LOCATION_DEVICE && at->type != GA_CUDA_LOCATION_DOMAIN)
        return -1;
    return ga_cuda_device_number(root,
                                 at->type == GA_CUDA_LOCATION_DOMAIN ? at->id & 0xff : at->id);
}

GA_NOINLINE int ga_cuda_device_find(struct ga_root *root, ga_context context, uint64_t *serial) {
    ga_cu_device ordinal = -1;
    uint64_t epoch = atomic_load(&ga_cuda(root)->context_epoch);
    if (!GA_ASK(cuCtxGetDevice, &ordinal))
        return -1;
    int device = ga_cuda_device_number(root, ordinal);
    if (device < 0)
        return -1;
    ga_cuda_device_several(root);
    ga_cuda_device_first_use *first_use = atomic_load(&ga_cuda_device_first_use_function);
    ga_self.context = 0;
    if (!first_use(root, context, (uint32_t)device, epoch))
        return -1;
    *serial = ga_self.serial;
    ga_self.context = (uint64_t)(uintptr_t)context;
    ga_self.context_epoch = epoch;
    ga_self.device = (uint32_t)device;
    return device;
}

bool ga_cuda_device_find_stream(struct ga_root *root, ga_stream stream, struct ga_entry *entry) {
    if ((uintptr_t)stream <= (uintptr_t)GA_CUDA_STREAM_PER_THREAD)
        return false;
    return ga_self_find(&root->streams, (uint64_t)(uintptr_t)stream, entry);
}

int ga_cuda_device_of_stream(struct ga_root *root, ga_stream stream, uint64_t *serial) {
    struct ga_entry entry;
    bool found = ga_cuda_device_find_stream(root, stream, &entry);
    bool met = found && ga_self.serial == entry.context && ga_self.device == entry.device &&
               ga_self.context_epoch == atomic_load(&ga_cuda(root)->context_epoch);
    int current = met ? entry.device : ga_cuda_device_current(root, serial);
    if (!met && (!found || !ga_cuda_device_several(root)))
        return current;
    *serial = entry.context;
    return entry.device;
}
