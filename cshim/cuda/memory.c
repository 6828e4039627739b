// SPDX-License-Identifier: Apache-2.0
#include "cuda/memory.h"

#include "cuda/claim.h"
#include "cuda/host.h"
#include "cuda/import.h"
#include "cuda/pool.h"
#include "cuda/state.h"

// An address of 32 bits need not mean anything to the other interface.
static bool free_again(uint64_t address) {
    return GA_REAL(cuMemFree_v2)(address) == GA_CUDA_SUCCESS;
}

static bool free_again_v1(uint64_t address) {
    return GA_REAL(cuMemFree)((uint32_t)address) == GA_CUDA_SUCCESS;
}

ga_result ga_cuda_alloc(GA_FN_cuMemAlloc_v2 *real, ga_address *address, size_t bytes) {
    struct ga_cuda_claim c;
    if (GA_UNLIKELY(!ga_cuda_claim_open(&c, bytes, GA_MEMORY_PLAIN)))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(address, bytes);
    return ga_cuda_claim_settle(&c, result, result == GA_CUDA_SUCCESS ? *address : 0, free_again);
}

ga_result ga_cuda_alloc_v1(GA_FN_cuMemAlloc *real, uint32_t *address, unsigned int bytes) {
    struct ga_cuda_claim c;
    if (GA_UNLIKELY(!ga_cuda_claim_open(&c, bytes, GA_MEMORY_PLAIN)))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(address, bytes);
    return ga_cuda_claim_settle(&c, result, result == GA_CUDA_SUCCESS ? *address : 0,
                                free_again_v1);
}

ga_result ga_cuda_alloc_managed(GA_FN_cuMemAllocManaged *real, ga_address *address, size_t bytes,
                                unsigned int flags) {
    struct ga_cuda_claim c;
    if (GA_UNLIKELY(!ga_cuda_claim_open(&c, bytes, GA_MEMORY_MANAGED)))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(address, bytes, flags);
    if (c.root)
        ga_tell_soft(c.root); // its pages go where they are used
    return ga_cuda_claim_settle(&c, result, result == GA_CUDA_SUCCESS ? *address : 0, free_again);
}

// The driver rounds rows up to the device's texture alignment. What it really chose is known
// only afterwards, so the charge is corrected then.
static uint64_t expected_pitch(struct ga_root *root, int device, uint64_t width) {
    _Atomic uint32_t *known = &ga_cuda(root)->alignment[device];
    uint32_t alignment = atomic_load(known);
    if (alignment == 0) {
        int value = 0;
        if (!GA_REAL(cuDeviceGetAttribute) ||
            GA_REAL(cuDeviceGetAttribute)(&value, GA_CUDA_ATTRIBUTE_TEXTURE_ALIGNMENT,
                                          ga_cuda_device_ordinal(root, (uint32_t)device)) !=
                GA_CUDA_SUCCESS ||
            value < 1)
            value = 512;
        alignment = (uint32_t)value;
        atomic_store(known, alignment);
    }
    uint64_t rows = (width + alignment - 1) / alignment;
    return rows * alignment;
}

static bool open_pitched(struct ga_cuda_claim *c, uint64_t width, uint64_t height) {
    uint64_t bytes = 0;
    *c = (struct ga_cuda_claim){.kind = GA_MEMORY_PITCHED};
    if (width == 0 || height == 0)
        return true;
    if (!ga_cuda_claim_begin(c))
        return false;
    int device = c->root ? ga_cuda_device_current(c->root, &c->context) : -1;
    // A size that no number holds is the driver's to refuse.
    if (device >= 0 &&
        (width > UINT64_MAX / 2 ||
         __builtin_mul_overflow(expected_pitch(c->root, device, width), height, &bytes)))
        device = -1;
    c->bytes = bytes;
    return ga_cuda_claim_on(c, device);
}

// Charges what the driver really took. False: the difference was refused.
static bool correct(struct ga_cuda_claim *c, uint64_t bytes) {
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

static ga_result settle_pitched(struct ga_cuda_claim *c, ga_result result, ga_address address,
                                uint64_t bytes, ga_cuda_undo *undo) {
    if (c->root && result == GA_CUDA_SUCCESS && !correct(c, bytes)) {
        undo(address);
        result = GA_CUDA_OUT_OF_MEMORY;
    }
    return ga_cuda_claim_settle(c, result, address, undo);
}

ga_result ga_cuda_alloc_pitch(GA_FN_cuMemAllocPitch_v2 *real, ga_address *address, size_t *pitch,
                              size_t width, size_t height, unsigned int element) {
    struct ga_cuda_claim c;
    if (!open_pitched(&c, width, height))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(address, pitch, width, height, element);
    bool ok = result == GA_CUDA_SUCCESS;
    return settle_pitched(&c, result, ok ? *address : 0, ok ? *pitch * height : 0, free_again);
}

ga_result ga_cuda_alloc_pitch_v1(GA_FN_cuMemAllocPitch *real, uint32_t *address,
                                 unsigned int *pitch, unsigned int width, unsigned int height,
                                 unsigned int element) {
    struct ga_cuda_claim c;
    if (!open_pitched(&c, width, height))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(address, pitch, width, height, element);
    bool ok = result == GA_CUDA_SUCCESS;
    return settle_pitched(&c, result, ok ? *address : 0, ok ? (uint64_t)*pitch * height : 0,
                          free_again_v1);
}

// A free takes the entry out before the driver is called: once the driver has freed the address,
// another thread may get it again and record it. Refused by the driver, it goes back in.
static inline void free_settle(struct ga_root *root, ga_result result, const struct ga_entry *entry,
                               uint64_t epoch) {
    struct ga_cuda_pool *pool = ga_cuda_pool_of(entry);
    if (GA_UNLIKELY(result != GA_CUDA_SUCCESS)) {
        ga_cuda_claim_put_back(root, entry, epoch);
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
