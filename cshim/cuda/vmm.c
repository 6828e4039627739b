// SPDX-License-Identifier: Apache-2.0
#include "cuda/vmm.h"

#include "core/host.h"
#include "core/records.h"
#include "cuda/claim.h"
#include "cuda/state.h"

// Memory that a handle refers to, or that is mapped. Its charge is in root.blocks, under the
// address of this record: a handle may be used again while what it stood for is still mapped.
struct ga_cuda_vmm_memory {
    uint64_t uses;   // references by handles, and mappings, also those that are being made
    uint64_t host;   // bytes of host memory, which lives in no context; 0: it is a device's
    uint32_t device; // of what is a device's
    bool imported;   // another process's, and not charged: device and size are known
    uint64_t size;   // then: the most that was seen to be mapped of it, 0: nothing yet
};

static struct ga_cuda_vmm_memory *new_memory(struct ga_root *root) {
    struct ga_cuda_vmm_memory *m = ga_records_take(root, &ga_cuda(root)->vmm.unused, sizeof *m);
    if (m)
        *m = (struct ga_cuda_vmm_memory){.uses = 1};
    return m;
}

static void drop_record(struct ga_root *root, struct ga_cuda_vmm_memory *m) {
    ga_records_give(&ga_cuda(root)->vmm.unused, m);
}

static struct ga_cuda_vmm_memory *memory_of(const struct ga_entry *e) {
    return (struct ga_cuda_vmm_memory *)(uintptr_t)e->context;
}

static struct ga_key key_of(const struct ga_cuda_vmm_memory *m) {
    return (struct ga_key){(uint64_t)(uintptr_t)m, GA_SPACE_CUDA_MEMORY};
}

// Ends uses of memory. After the last one the driver has given the memory back, and so is its
// charge.
static void leave(struct ga_root *root, struct ga_cuda_vmm_memory *m, uint64_t uses) {
    struct ga_cuda_vmm *v = &ga_cuda(root)->vmm;
    struct ga_entry entry;
    ga_self_lock(&v->lock);
    m->uses -= uses;
    bool over = m->uses == 0;
    ga_self_unlock(&v->lock);
    if (!over)
        return;
    if (m->imported)
        ga_tell_import(root, m->device, 0 - m->size, m->size ? 0 : -1);
    if (m->host)
        ga_host_give(root, m->host);
    else if (ga_withdraw_key(root, key_of(m), &entry))
        ga_release_entry(root, &entry); // else it is not charged
    drop_record(root, m);
}

// Finds the memory of a handle, and counts a use of it. NULL: it is none of ours.
static struct ga_cuda_vmm_memory *use_handle(struct ga_root *root, ga_memory handle) {
    struct ga_cuda_vmm *v = &ga_cuda(root)->vmm;
    struct ga_entry e;
    ga_self_lock(&v->lock);
    struct ga_cuda_vmm_memory *m = ga_table_find(&v->handles, handle, &e) ? memory_of(&e) : NULL;
    if (m)
        m->uses++;
    ga_self_unlock(&v->lock);
    return m;
}

// Writes down that a handle refers to memory, in which the reference is counted already. If the
// handle stood for other memory, that has ended out of our sight. False: no memory.
static bool refer(struct ga_root *root, ga_memory handle, struct ga_cuda_vmm_memory *m) {
    struct ga_cuda_vmm *v = &ga_cuda(root)->vmm;
    struct ga_entry e;
    struct ga_entry old = {0};
    ga_self_lock(&v->lock);
    bool known = ga_table_find(&v->handles, handle, &e) && memory_of(&e) == m;
    e = (struct ga_entry){
        .key = handle, .bytes = known ? e.bytes + 1 : 1, .context = (uint64_t)(uintptr_t)m};
    bool put = ga_table_put(&v->handles, &e, &old);
    ga_self_unlock(&v->lock);
    if (put && old.key && memory_of(&old) != m)
        leave(root, memory_of(&old), old.bytes);
    return put;
}

// False: refused. *memory: what the driver is asked for, unless it alone decides (no root).
static bool open_claim(struct ga_claim *c, struct ga_cuda_vmm_memory **memory, uint64_t bytes,
                       const struct ga_cu_memory_properties *properties) {
    *c = (struct ga_claim){.entry = {.bytes = bytes, .kind = GA_MEMORY_PLAIN}};
    if (bytes == 0 || !ga_claim_begin(c))
        return bytes == 0;
    struct ga_root *root = c->root;
    bool host = properties && ga_cuda_in_host(properties->location.type);
    int device = root && properties && !host ? ga_cuda_device_at(root, &properties->location) : -1;
    if (!root || (host ? bytes > GA_CREDIT_LIMIT : device < 0)) { // no host has so much
        c->root = NULL;
        return true;
    }
    *memory = new_memory(root);
    if (!*memory)
        return false;
    (*memory)->host = host ? bytes : 0;
    if (host ? ga_host_take(root, bytes) : ga_cuda_claim_on(c, device))
        return true;
    drop_record(root, *memory);
    return false;
}

// Puts what was created into the tables. False: no memory for that.
static bool record(struct ga_claim *c, struct ga_cuda_vmm_memory *m, ga_memory handle) {
    c->entry.key = key_of(m).number;
    c->entry.space = GA_SPACE_CUDA_MEMORY;
    m->device = c->entry.device;
    if (!m->host && !ga_hold(c->root, &c->entry))
        return false;
    if (refer(c->root, handle, m))
        return true;
    if (!m->host)
        ga_withdraw_key(c->root, key_of(m), &c->entry);
    return false;
}

ga_result ga_cuda_vmm_create(GA_FN_cuMemCreate *real, ga_memory *handle, size_t bytes,
                             const struct ga_cu_memory_properties *properties, uint64_t flags) {
    struct ga_claim c;
    struct ga_cuda_vmm_memory *m = NULL;
    if (!open_claim(&c, &m, bytes, properties))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(handle, bytes, properties, flags);
    if (!c.root)
        return result;
    // If the memory cannot be written down, the driver takes it back.
    if (result == GA_CUDA_SUCCESS && !record(&c, m, *handle)) {
        if (GA_REAL(cuMemRelease)(*handle) != GA_CUDA_SUCCESS)
            return result;
        result = GA_CUDA_OUT_OF_MEMORY;
    }
    if (result == GA_CUDA_SUCCESS)
        return result;
    if (m->host)
        ga_host_give(c.root, m->host);
    else
        ga_claim_drop(&c);
    drop_record(c.root, m);
    return result;
}

// The device that a handle's memory is on; −1: none that is arbitrated.
static int device_of(struct ga_root *root, ga_memory handle) {
    struct ga_cu_memory_properties_room room = {.properties = {0}};
    uint64_t context;
    if (GA_ASK(cuMemGetAllocationPropertiesFromHandle, &room, handle))
        return ga_cuda_in_host(room.properties.location.type)
                   ? -1
                   : ga_cuda_device_at(root, &room.properties.location);
    return ga_cuda_device_current(root, &context);
}

// A handle of another process's memory, which is not charged here. Its uses are counted all the
// same. If the driver has given out a handle again that is known, it is a further reference.
static void note(struct ga_root *root, ga_memory handle, int device) {
    struct ga_cuda_vmm_memory *m = use_handle(root, handle);
    if (m) {
        if (!refer(root, handle, m))
            leave(root, m, 1);
        return;
    }
    m = new_memory(root);
    if (!m)
        return;
    m->imported = device >= 0;
    m->device = m->imported ? (uint32_t)device : 0;
    if (!refer(root, handle, m))
        drop_record(root, m);
    else if (m->imported)
        ga_tell_import(root, (uint32_t)device, 0, 1);
}

// What is mapped tells how large an import is, at least.
static void measure(struct ga_root *root, struct ga_cuda_vmm_memory *m, uint64_t size) {
    struct ga_cuda_vmm *v = &ga_cuda(root)->vmm;
    ga_self_lock(&v->lock);
    uint64_t was = m->size;
    if (size > was)
        m->size = size;
    ga_self_unlock(&v->lock);
    if (size > was)
        ga_tell_import(root, m->device, size - was, was ? 0 : -1);
}

ga_result ga_cuda_vmm_imported(ga_result result, const ga_memory *handle) {
    struct ga_root *root = result == GA_CUDA_SUCCESS && handle ? ga_root_get() : NULL;
    if (root)
        note(root, *handle, device_of(root, *handle));
    return result;
}

// As with a free: a handle leaves the table before the driver is called, which may give it out
// again. The memory keeps the use meanwhile.
ga_result ga_cuda_vmm_release(GA_FN_cuMemRelease *real, ga_memory handle) {
    struct ga_root *root = ga_root_get();
    struct ga_entry e;
    struct ga_entry old;
    if (!root)
        return real(handle);
    struct ga_cuda_vmm *v = &ga_cuda(root)->vmm;
    ga_self_lock(&v->lock);
    bool ours = ga_table_take(&v->handles, handle, &e);
    if (ours && e.bytes > 1) {
        e.bytes--;
        ga_table_put(&v->handles, &e, &old);
    }
    ga_self_unlock(&v->lock);
    ga_result result = real(handle);
    if (ours && result == GA_CUDA_SUCCESS)
        leave(root, memory_of(&e), 1);
    else if (ours)
        refer(root, handle, memory_of(&e));
    return result;
}

// Finds the memory that is mapped at an address, which need not be the beginning of a mapping, and
// counts a use of it. NULL: it is none of ours.
static struct ga_cuda_vmm_memory *use_mapped(struct ga_root *root, uint64_t address) {
    struct ga_cuda_vmm *v = &ga_cuda(root)->vmm;
    struct ga_cuda_vmm_memory *m = NULL;
    struct ga_entry e;
    ga_self_lock(&v->lock);
    if (ga_table_find(&v->mapped, address, &e)) {
        m = memory_of(&e);
    } else {
        struct ga_walk walk = ga_table_walk(&v->mapped);
        while (ga_table_next(&walk, &e))
            if (address >= e.key && address - e.key < e.bytes)
                m = memory_of(&e);
    }
    if (m)
        m->uses++;
    ga_self_unlock(&v->lock);
    return m;
}

ga_result ga_cuda_vmm_retain(GA_FN_cuMemRetainAllocationHandle *real, ga_memory *handle,
                             void *address) {
    struct ga_root *root = ga_root_get();
    struct ga_cuda_vmm_memory *m = root ? use_mapped(root, (uint64_t)(uintptr_t)address) : NULL;
    ga_result result = real(handle, address);
    if (m && result == GA_CUDA_SUCCESS)
        refer(root, *handle, m);
    else if (m)
        leave(root, m, 1);
    return result;
}

// A mapping of memory that is none of ours is in the table as well, for its length: an unmap may go
// over several mappings.
ga_result ga_cuda_vmm_map(GA_FN_cuMemMap *real, ga_address address, size_t bytes, size_t offset,
                          ga_memory handle, uint64_t flags) {
    struct ga_root *root = ga_root_get();
    struct ga_entry old = {0};
    if (!root)
        return real(address, bytes, offset, handle, flags);
    struct ga_cuda_vmm_memory *m = use_handle(root, handle);
    ga_result result = real(address, bytes, offset, handle, flags);
    if (result != GA_CUDA_SUCCESS) {
        if (m)
            leave(root, m, 1);
        return result;
    }
    if (m && m->imported)
        measure(root, m, offset + bytes);
    struct ga_entry e = {.key = address, .bytes = bytes, .context = (uint64_t)(uintptr_t)m};
    // Without memory for the entry, what is mapped stays charged.
    ga_self_put(&ga_cuda(root)->vmm.mapped, &e, &old);
    if (old.key && memory_of(&old)) // unmapped out of our sight
        leave(root, memory_of(&old), 1);
    return result;
}

// The range has whole mappings, next to each other. The program has the addresses to itself, so
// that no other mapping comes there before this call returns.
ga_result ga_cuda_vmm_unmap(GA_FN_cuMemUnmap *real, ga_address address, size_t bytes) {
    struct ga_root *root = ga_root_get();
    struct ga_entry e;
    ga_result result = real(address, bytes);
    if (!root || result != GA_CUDA_SUCCESS)
        return result;
    for (uint64_t done = 0;
         done < bytes && ga_self_take(&ga_cuda(root)->vmm.mapped, address + done, &e);
         done += e.bytes)
        if (memory_of(&e))
            leave(root, memory_of(&e), 1);
    return result;
}
