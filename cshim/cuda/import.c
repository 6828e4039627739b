// SPDX-License-Identifier: Apache-2.0
// Inserts and removes entries of imported memory (import.h).
#include "cuda/import.h"

#include "core/import.h"
#include "cuda/context.h"
#include "cuda/device.h"

// Returns the device that a block is on, which may differ from the current device.
static int device_of(struct ga_root *root, ga_address address, int otherwise) {
    ga_cu_device ordinal = -1;
    if (GA_ASK(cuPointerGetAttribute, &ordinal, GA_CUDA_POINTER_ORDINAL, address))
        return ga_cuda_device_number(root, ordinal);
    return otherwise;
}

static void note(struct ga_root *root, const struct ga_entry *entry, uint64_t epoch) {
    ga_import_note(root, entry);
    ga_cuda_context_check(root, entry->context, epoch);
}

static void note_block(ga_address address, const ga_pool *pool) {
    struct ga_root *root = ga_root_get();
    uint64_t epoch = root ? ga_cuda_context_epoch(root) : 0;
    uint64_t context = 0;
    ga_address base = 0;
    size_t bytes = 0;
    int current = root ? ga_cuda_device_current(root, &context) : -1;
    int device = root ? device_of(root, address, current) : -1;
    if (device < 0)
        return;
    if (!GA_ASK(cuMemGetAddressRange_v2, &base, &bytes, address))
        bytes = 0;
    note(root,
         &(struct ga_entry){.key = address,
                            .bytes = bytes,
                            .context = pool ? (uint64_t)(uintptr_t)*pool : context,
                            .device = (uint8_t)device},
         epoch);
}

ga_result ga_cuda_import_opened(ga_result result, const ga_address *address, const ga_pool *pool) {
    if (result == GA_CUDA_SUCCESS && address)
        note_block(*address, pool);
    return result;
}

static bool remove_import(struct ga_allocation *c, struct ga_key key) {
    c->root = ga_root_get();
    if (!c->root)
        return false;
    c->epoch = ga_cuda_context_epoch(c->root);
    return ga_import_remove(c->root, key, &c->entry);
}

bool ga_cuda_import_remove(struct ga_allocation *c, ga_address address) {
    return remove_import(c, (struct ga_key){address, GA_SPACE_PLAIN});
}

bool ga_cuda_import_remove_external(struct ga_allocation *c, void *memory) {
    return remove_import(c, (struct ga_key){(uint64_t)(uintptr_t)memory, GA_SPACE_CUDA_EXTERNAL});
}

void ga_cuda_import_freed(const struct ga_allocation *c, ga_result result) {
    ga_import_finish_remove(c->root, &c->entry, result == GA_CUDA_SUCCESS);
    if (result != GA_CUDA_SUCCESS)
        ga_cuda_context_check(c->root, c->entry.context, c->epoch);
}

// The descriptor does not name a device: the memory counts on the current device.
ga_result ga_cuda_import_external(GA_FN_cuImportExternalMemory *real, void **memory,
                                  const void *descriptor) {
    ga_result result = real(memory, descriptor);
    struct ga_root *root = result == GA_CUDA_SUCCESS && memory ? ga_root_get() : NULL;
    const struct ga_cu_external *what = descriptor;
    uint64_t epoch = root ? ga_cuda_context_epoch(root) : 0;
    uint64_t context;
    int device = root ? ga_cuda_device_current(root, &context) : -1;
    if (device >= 0)
        note(root,
             &(struct ga_entry){.key = (uint64_t)(uintptr_t)*memory,
                                .space = GA_SPACE_CUDA_EXTERNAL,
                                .bytes = what->bytes,
                                .context = context,
                                .device = (uint8_t)device},
             epoch);
    return result;
}
