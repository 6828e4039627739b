// SPDX-License-Identifier: Apache-2.0
#include "cuda/import.h"

#include "core/tell.h"
#include "cuda/device.h"

// An entry of root.imports: its tag counts how often the memory was opened, and bytes is 0 where
// nobody tells its size. The key is an address, or a handle of another API's memory with this bit.
#define EXTERNAL (1ull << 60)

static void count(struct ga_root *root, const struct ga_entry *e, bool more) {
    ga_tell_import(root, e->device, more ? e->bytes : 0 - e->bytes, e->bytes ? 0 : (more ? 1 : -1));
}

// Memory that is opened twice has the same address twice. With another size it is another block:
// the one before has ended, and no call that we see said so.
static void note(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_entry e = *entry;
    struct ga_entry old = {0};
    e.tag = 1;
    ga_self_lock(&root->imports_lock);
    if (ga_table_find(&root->imports, e.key, &old) && old.bytes == e.bytes &&
        old.context == e.context && old.tag < UINT16_MAX)
        e.tag = (uint16_t)(old.tag + 1);
    bool put = ga_table_put(&root->imports, &e, &old);
    ga_self_unlock(&root->imports_lock);
    if (!put) // without memory to remember it by, it stays unknown
        ga_tell_import(root, e.device, 0, 1);
    if (put && e.tag == 1) {
        count(root, &e, true);
        if (old.key)
            count(root, &old, false);
    }
}

// Takes one use of it out, before the driver is asked: it may give the address out again.
static bool take(struct ga_root *root, uint64_t key, struct ga_entry *entry) {
    struct ga_entry rest;
    struct ga_entry old;
    if (!root)
        return false;
    ga_self_lock(&root->imports_lock);
    bool found = ga_table_take(&root->imports, key, entry);
    if (found && entry->tag > 1) {
        rest = *entry;
        rest.tag--;
        ga_table_put(&root->imports, &rest, &old);
    }
    ga_self_unlock(&root->imports_lock);
    return found;
}

static void put_back(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_entry e = *entry;
    struct ga_entry old;
    ga_self_lock(&root->imports_lock);
    ga_table_put(&root->imports, &e, &old);
    ga_self_unlock(&root->imports_lock);
}

void ga_cuda_import_end_free(struct ga_root *root, ga_result result, const struct ga_entry *entry) {
    if (result != GA_CUDA_SUCCESS)
        put_back(root, entry);
    else if (entry->tag == 1)
        count(root, entry, false);
}

// The device that a block lies on, which need not be the current one.
static int device_of(struct ga_root *root, ga_address address, int otherwise) {
    ga_cu_device ordinal = -1;
    if (GA_REAL(cuPointerGetAttribute) &&
        GA_REAL(cuPointerGetAttribute)(&ordinal, GA_CUDA_POINTER_ORDINAL, address) ==
            GA_CUDA_SUCCESS)
        return ga_cuda_device_number(root, ordinal);
    return otherwise;
}

static void note_block(ga_address address, const ga_pool *pool) {
    struct ga_root *root = ga_root_get();
    uint64_t context = 0;
    ga_address base = 0;
    size_t bytes = 0;
    int current = root ? ga_cuda_device_current(root, &context) : -1;
    int device = root ? device_of(root, address, current) : -1;
    if (device < 0)
        return;
    if (!GA_REAL(cuMemGetAddressRange_v2) ||
        GA_REAL(cuMemGetAddressRange_v2)(&base, &bytes, address) != GA_CUDA_SUCCESS)
        bytes = 0;
    note(root, &(struct ga_entry){.key = address,
                                  .bytes = bytes,
                                  .context = pool ? (uint64_t)(uintptr_t)*pool : context,
                                  .device = (uint8_t)device});
}

ga_result ga_cuda_import_opened(ga_result result, const ga_address *address, const ga_pool *pool) {
    if (result == GA_CUDA_SUCCESS && address)
        note_block(*address, pool);
    return result;
}

ga_result ga_cuda_import_close(GA_FN_cuIpcCloseMemHandle *real, ga_address address) {
    struct ga_root *root = ga_root_get();
    struct ga_entry entry;
    bool ours = take(root, address, &entry);
    ga_result result = real(address);
    if (ours)
        ga_cuda_import_end_free(root, result, &entry);
    return result;
}

// The descriptor names no device: the memory is taken to be on the current one.
ga_result ga_cuda_import_external(GA_FN_cuImportExternalMemory *real, void **memory,
                                  const void *descriptor) {
    ga_result result = real(memory, descriptor);
    struct ga_root *root = result == GA_CUDA_SUCCESS && memory ? ga_root_get() : NULL;
    const struct ga_cu_external *what = descriptor;
    uint64_t context;
    int device = root ? ga_cuda_device_current(root, &context) : -1;
    if (device >= 0)
        note(root, &(struct ga_entry){.key = (uint64_t)(uintptr_t)*memory | EXTERNAL,
                                      .bytes = what->bytes,
                                      .context = context,
                                      .device = (uint8_t)device});
    return result;
}

ga_result ga_cuda_import_destroy(GA_FN_cuDestroyExternalMemory *real, void *memory) {
    struct ga_root *root = ga_root_get();
    struct ga_entry entry;
    bool ours = take(root, (uint64_t)(uintptr_t)memory | EXTERNAL, &entry);
    ga_result result = real(memory);
    if (ours)
        ga_cuda_import_end_free(root, result, &entry);
    return result;
}

bool ga_cuda_import_begin_free(struct ga_root *root, ga_address address, struct ga_entry *entry) {
    return atomic_load(&root->imports.most) != 0 && take(root, address, entry);
}

struct ended {
    uint64_t bytes[GA_DEVICES];
    int unknown[GA_DEVICES];
};

static void add(void *arg, const struct ga_entry *e) {
    struct ended *ended = arg;
    ended->bytes[e->device] += e->bytes;
    ended->unknown[e->device] += e->bytes == 0;
}

void ga_cuda_import_sweep(struct ga_root *root, uint64_t ended) {
    struct ended all;
    if (atomic_load(&root->imports.most) == 0)
        return;
    ga_os_zero(&all, sizeof all);
    ga_self_lock(&root->imports_lock);
    ga_table_drain(&root->imports, ended, add, &all);
    ga_self_unlock(&root->imports_lock);
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (all.bytes[d] || all.unknown[d])
            ga_tell_import(root, d, 0 - all.bytes[d], 0 - all.unknown[d]);
}
