// SPDX-License-Identifier: Apache-2.0
#include "cuda_memory.h"

#include "admit.h"
#include "cuda_device.h"
#include "cuda_host.h"
#include "cuda_import.h"
#include "cuda_late.h"
#include "cuda_pool.h"

// One allocation on its way: open, then the driver, then settle.
struct claim {
    struct ga_root *root;
    uint64_t bytes;
    uint64_t context;
    uint64_t epoch; // ga_cuda_late_epoch
    uint32_t device;
    uint16_t tag;
    uint8_t kind;
    bool v1; // of the first interface
};

enum opened {
    PASS,     // not arbitrated: the driver alone decides
    REFUSED,  // nothing was taken
    ADMITTED, // settle must follow
};

static inline enum opened open_on(struct claim *c, int device) {
    if (GA_UNLIKELY(device < 0))
        return PASS;
    c->device = (uint32_t)device;
    c->v1 = false;
    if (GA_UNLIKELY(!ga_admit(c->root, c->device, c->bytes, c->kind, &c->tag)))
        return REFUSED;
    c->epoch = ga_cuda_late_epoch(c->root);
    return ADMITTED;
}

static inline enum opened open_current(struct claim *c, uint64_t bytes, uint8_t kind) {
    c->root = ga_root_get();
    c->bytes = bytes;
    c->kind = kind;
    if (GA_UNLIKELY(bytes == 0))
        return PASS;
    if (GA_UNLIKELY(c->root == NULL))
        return ga_root_denies() ? REFUSED : PASS;
    return open_on(c, ga_cuda_device_current(c->root, &c->context));
}

static inline void roll_back(struct claim *c) {
    ga_release(c->root, c->device, c->bytes, c->tag);
}

// An address of 32 bits need not mean anything to the other interface.
static ga_result free_real(const struct claim *c, ga_address address) {
    return c->v1 ? GA_REAL(cuMemFree)((uint32_t)address) : GA_REAL(cuMemFree_v2)(address);
}

static inline ga_result settle(struct claim *c, ga_result result, ga_address address) {
    if (GA_UNLIKELY(result != GA_CUDA_SUCCESS)) {
        roll_back(c);
        return result;
    }
    struct ga_entry entry = {
        .key = address,
        .bytes = c->bytes,
        .context = c->context,
        .tag = c->tag,
        .device = (uint8_t)c->device,
        .kind = c->kind,
    };
    // Without memory to remember it by: better no block than one that nobody can account for.
    if (GA_UNLIKELY(!ga_hold(c->root, &entry)) && free_real(c, address) == GA_CUDA_SUCCESS) {
        roll_back(c);
        return GA_CUDA_OUT_OF_MEMORY;
    }
    ga_cuda_late_look(c->root, &c->root->blocks, &entry, c->epoch);
    return result;
}

ga_result ga_cuda_alloc(GA_FN_cuMemAlloc_v2 *real, ga_address *address, size_t bytes) {
    struct claim c;
    enum opened opened = open_current(&c, bytes, GA_MEMORY_PLAIN);
    if (GA_UNLIKELY(opened == REFUSED))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(address, bytes);
    if (GA_UNLIKELY(opened == PASS))
        return result;
    return settle(&c, result, result == GA_CUDA_SUCCESS ? *address : 0);
}

ga_result ga_cuda_alloc_v1(GA_FN_cuMemAlloc *real, uint32_t *address, unsigned int bytes) {
    struct claim c;
    enum opened opened = open_current(&c, bytes, GA_MEMORY_PLAIN);
    if (opened == REFUSED)
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(address, bytes);
    if (opened == PASS)
        return result;
    c.v1 = true;
    return settle(&c, result, result == GA_CUDA_SUCCESS ? *address : 0);
}

ga_result ga_cuda_alloc_managed(GA_FN_cuMemAllocManaged *real, ga_address *address, size_t bytes,
                                unsigned int flags) {
    struct claim c;
    enum opened opened = open_current(&c, bytes, GA_MEMORY_MANAGED);
    if (opened == REFUSED)
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(address, bytes, flags);
    if (opened == PASS)
        return result;
    ga_tell_soft(c.root); // its pages go where they are used
    return settle(&c, result, result == GA_CUDA_SUCCESS ? *address : 0);
}

// The driver rounds rows up to the device's texture alignment. What it really chose is known
// only afterwards, so the charge is corrected then.
static uint64_t expected_pitch(struct ga_root *root, int device, uint64_t width) {
    if (device < 0)
        return width;
    struct ga_device *d = &root->devices[device];
    uint32_t alignment = atomic_load(&d->alignment);
    if (alignment == 0) {
        int value = 0;
        if (!GA_REAL(cuDeviceGetAttribute) ||
            GA_REAL(cuDeviceGetAttribute)(&value, GA_CUDA_ATTRIBUTE_TEXTURE_ALIGNMENT, device) !=
                GA_CUDA_SUCCESS ||
            value < 1)
            value = 512;
        alignment = (uint32_t)value;
        atomic_store(&d->alignment, alignment);
    }
    uint64_t rows = (width + alignment - 1) / alignment;
    return rows * alignment;
}

static enum opened open_pitched(struct claim *c, uint64_t width, uint64_t height) {
    uint64_t bytes;
    c->root = ga_root_get();
    c->kind = GA_MEMORY_PITCHED;
    if (width == 0 || height == 0)
        return PASS;
    if (c->root == NULL)
        return ga_root_denies() ? REFUSED : PASS;
    int device = ga_cuda_device_current(c->root, &c->context);
    // A size that no number holds is the driver's to refuse.
    if (width > UINT64_MAX / 2 ||
        __builtin_mul_overflow(expected_pitch(c->root, device, width), height, &bytes))
        return PASS;
    c->bytes = bytes;
    return open_on(c, device);
}

// Charges what the driver really took. False: the difference was refused.
static bool correct(struct claim *c, uint64_t bytes) {
    if (bytes < c->bytes)
        ga_release(c->root, c->device, c->bytes - bytes, c->tag);
    while (bytes > c->bytes) {
        uint16_t tag;
        uint64_t rest = bytes - c->bytes;
        if (!ga_admit(c->root, c->device, rest, c->kind, &tag))
            return false;
        if (tag == c->tag)
            break;
        // The session began anew in between: what was charged before is nobody's.
        ga_release(c->root, c->device, c->bytes, c->tag);
        c->bytes = rest;
        c->tag = tag;
    }
    c->bytes = bytes;
    return true;
}

static ga_result settle_pitched(struct claim *c, ga_result result, ga_address address,
                                uint64_t bytes) {
    if (result == GA_CUDA_SUCCESS && !correct(c, bytes)) {
        free_real(c, address);
        result = GA_CUDA_OUT_OF_MEMORY;
    }
    return settle(c, result, address);
}

ga_result ga_cuda_alloc_pitch(GA_FN_cuMemAllocPitch_v2 *real, ga_address *address, size_t *pitch,
                              size_t width, size_t height, unsigned int element) {
    struct claim c;
    enum opened opened = open_pitched(&c, width, height);
    if (opened == REFUSED)
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(address, pitch, width, height, element);
    if (opened == PASS)
        return result;
    bool ok = result == GA_CUDA_SUCCESS;
    return settle_pitched(&c, result, ok ? *address : 0, ok ? *pitch * height : 0);
}

ga_result ga_cuda_alloc_pitch_v1(GA_FN_cuMemAllocPitch *real, uint32_t *address,
                                 unsigned int *pitch, unsigned int width, unsigned int height,
                                 unsigned int element) {
    struct claim c;
    enum opened opened = open_pitched(&c, width, height);
    if (opened == REFUSED)
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(address, pitch, width, height, element);
    if (opened == PASS)
        return result;
    c.v1 = true;
    bool ok = result == GA_CUDA_SUCCESS;
    return settle_pitched(&c, result, ok ? *address : 0, ok ? (uint64_t)*pitch * height : 0);
}

// A free takes the entry out before the driver is called: once the driver has freed the address,
// another thread may get it again and record it. Refused by the driver, it goes back in.
static inline void free_settle(struct ga_root *root, ga_result result, const struct ga_entry *entry,
                               uint64_t epoch) {
    struct ga_cuda_pool *pool = ga_cuda_pool_of(entry);
    if (GA_UNLIKELY(result != GA_CUDA_SUCCESS)) {
        ga_hold(root, entry);
        ga_cuda_late_join(root, &root->blocks, entry, epoch);
    } else if (GA_UNLIKELY(pool != NULL)) {
        ga_cuda_pool_freed(root, pool, entry->bytes, entry->tag);
    } else {
        ga_release(root, entry->device, entry->bytes, entry->tag);
    }
}

ga_result ga_cuda_free(GA_FN_cuMemFree_v2 *real, ga_address address) {
    struct ga_entry entry;
    struct ga_root *root = ga_root_get();
    uint64_t epoch = GA_LIKELY(root != NULL) ? ga_cuda_late_epoch(root) : 0;
    bool ours = GA_LIKELY(root != NULL) && ga_withdraw(root, address, &entry);
    bool pooled =
        GA_UNLIKELY(root != NULL && !ours) && ga_cuda_host_begin_free(root, address, &entry);
    bool imported = GA_UNLIKELY(root != NULL && !ours && !pooled) &&
                    ga_cuda_import_begin_free(root, address, &entry);
    ga_result result = real(address);
    if (GA_LIKELY(ours))
        free_settle(root, result, &entry, epoch);
    else if (pooled)
        ga_cuda_host_end_free(root, result, &entry, epoch);
    else if (imported)
        ga_cuda_import_end_free(root, result, &entry);
    return result;
}

ga_result ga_cuda_free_v1(GA_FN_cuMemFree *real, uint32_t address) {
    struct ga_entry entry;
    struct ga_root *root = ga_root_get();
    uint64_t epoch = root ? ga_cuda_late_epoch(root) : 0;
    bool ours = root && ga_withdraw(root, address, &entry);
    ga_result result = real(address);
    if (ours)
        free_settle(root, result, &entry, epoch);
    return result;
}
