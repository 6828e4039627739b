// SPDX-License-Identifier: Apache-2.0
#include "cuda/vmm.h"

#include "core/host.h"
#include "core/records.h"
#include "cuda/claim.h"
#include "cuda/state.h"

// Memory that somebody refers to or maps. What it is charged with is in root.blocks, under the
// address of this: a handle may be used again while what it stood for is still mapped.
struct ga_cuda_vmm_memory {
    uint64_t references; // by all its handles
    uint64_t mappings;   // made, or being made
    uint64_t host;       // bytes of host memory, which lives in no context; 0: it is a device's
    uint32_t device;     // of what is a device's
    bool imported;       // another process's, and not charged: device and size are known
    uint64_t size;       // then: the most that was seen to be mapped of it, 0: nothing yet
    struct ga_cuda_vmm_memory *next; // about to be given back
};

struct mapping {
    uint64_t address;
    uint64_t bytes;
    struct ga_cuda_vmm_memory *memory; // NULL: none of ours
    struct mapping *next;
};

static struct ga_cuda_vmm_memory *new_memory(struct ga_root *root, struct ga_cuda_vmm *v) {
    struct ga_cuda_vmm_memory *m = ga_records_take(root, &v->unused, sizeof *m);
    if (m)
        *m = (struct ga_cuda_vmm_memory){.references = 1};
    return m;
}

static void *pointer_of(const struct ga_entry *e) {
    return (void *)(uintptr_t)e->context;
}

static struct ga_key key_of(const struct ga_cuda_vmm_memory *m) {
    return (struct ga_key){(uint64_t)(uintptr_t)m, GA_SPACE_CUDA_MEMORY};
}

// Takes away references and mappings; puts the memory on the list when it was the last one.
static void leave_locked(struct ga_cuda_vmm_memory *m, uint64_t references, uint64_t mappings,
                         struct ga_cuda_vmm_memory **gone) {
    m->references -= references;
    m->mappings -= mappings;
    if (m->references != 0 || m->mappings != 0)
        return;
    m->next = *gone;
    *gone = m;
}

// Gives back what the driver has given back.
static void end(struct ga_root *root, struct ga_cuda_vmm *v, struct ga_cuda_vmm_memory *gone) {
    while (gone) {
        struct ga_cuda_vmm_memory *m = gone;
        struct ga_entry entry;
        gone = m->next;
        if (m->imported)
            ga_tell_import(root, m->device, 0 - m->size, m->size ? 0 : -1);
        if (m->host)
            ga_host_give(root, m->host);
        else if (ga_withdraw_key(root, key_of(m), &entry))
            ga_release_entry(root, &entry); // else it is not charged
        ga_records_give(&v->unused, m);
    }
}

static struct ga_cuda_vmm_memory *memory_locked(struct ga_cuda_vmm *v, ga_memory handle) {
    struct ga_entry e;
    return ga_table_find(&v->handles, handle, &e) ? pointer_of(&e) : NULL;
}

// Records references of a handle. What it stood for before has ended out of our sight.
static bool refer_locked(struct ga_cuda_vmm *v, ga_memory handle, struct ga_cuda_vmm_memory *m,
                         struct ga_cuda_vmm_memory **gone) {
    struct ga_entry e;
    struct ga_entry old = {0};
    uint64_t references = 1;
    if (ga_table_find(&v->handles, handle, &e) && pointer_of(&e) == m)
        references += e.bytes;
    e = (struct ga_entry){.key = handle, .bytes = references, .context = (uint64_t)(uintptr_t)m};
    if (!ga_table_put(&v->handles, &e, &old))
        return false;
    if (old.key && pointer_of(&old) != m)
        leave_locked(pointer_of(&old), old.bytes, 0, gone);
    return true;
}

// Memory on its way.
struct claim {
    struct ga_claim c; // of a device's; but for root and bytes
    struct ga_cuda_vmm *vmm;
    struct ga_cuda_vmm_memory *memory;
    bool host;
};

static bool take(struct claim *c, int device) {
    return c->host ? ga_host_take(c->c.root, c->c.entry.bytes) : ga_cuda_claim_on(&c->c, device);
}

static void roll_back(struct claim *c) {
    if (c->host)
        ga_host_give(c->c.root, c->c.entry.bytes);
    else
        ga_claim_drop(&c->c);
    ga_records_give(&c->vmm->unused, c->memory);
}

// False: refused.
static bool open_claim(struct claim *c, uint64_t bytes,
                       const struct ga_cu_memory_properties *properties) {
    *c = (struct claim){.c.entry = {.bytes = bytes, .kind = GA_MEMORY_PLAIN}};
    if (bytes == 0 || !ga_claim_begin(&c->c))
        return bytes == 0;
    struct ga_root *root = c->c.root;
    c->host = properties && ga_cuda_in_host(properties->location.type);
    int device =
        root && properties && !c->host ? ga_cuda_device_at(root, &properties->location) : -1;
    if (!root || (c->host ? bytes > GA_CREDIT_LIMIT : device < 0)) { // no host has so much
        c->c.root = NULL;
        return true;
    }
    c->vmm = &ga_cuda(root)->vmm;
    c->memory = new_memory(root, c->vmm);
    if (!c->memory)
        return false;
    if (take(c, device))
        return true;
    ga_records_give(&c->vmm->unused, c->memory);
    return false;
}

// Puts what was created into the tables. False: no memory for that.
static bool record(struct claim *c, ga_memory handle) {
    struct ga_cuda_vmm_memory *gone = NULL;
    struct ga_entry *entry = &c->c.entry;
    entry->key = key_of(c->memory).number;
    entry->space = GA_SPACE_CUDA_MEMORY;
    c->memory->host = c->host ? entry->bytes : 0;
    c->memory->device = entry->device;
    if (!c->host && !ga_hold(c->c.root, entry))
        return false;
    ga_self_lock(&c->vmm->lock);
    bool kept = refer_locked(c->vmm, handle, c->memory, &gone);
    ga_self_unlock(&c->vmm->lock);
    end(c->c.root, c->vmm, gone);
    if (!kept && !c->host)
        ga_withdraw_key(c->c.root, key_of(c->memory), entry);
    return kept;
}

ga_result ga_cuda_vmm_create(GA_FN_cuMemCreate *real, ga_memory *handle, size_t bytes,
                             const struct ga_cu_memory_properties *properties, uint64_t flags) {
    struct claim c;
    if (!open_claim(&c, bytes, properties))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(handle, bytes, properties, flags);
    if (!c.c.root)
        return result;
    // Without memory to remember it by: better none than what nobody can account for.
    if (result == GA_CUDA_SUCCESS && !record(&c, *handle)) {
        if (GA_REAL(cuMemRelease)(*handle) != GA_CUDA_SUCCESS)
            return result;
        result = GA_CUDA_OUT_OF_MEMORY;
    }
    if (result != GA_CUDA_SUCCESS)
        roll_back(&c);
    return result;
}

// A handle of another process's memory, which is not charged here. Its references and mappings are
// counted all the same. If the driver has given out a handle again that is known, it is a further
// reference. device: where the memory lies; −1: on none that is arbitrated.
static void note(struct ga_root *root, ga_memory handle, int device) {
    struct ga_cuda_vmm *v = &ga_cuda(root)->vmm;
    struct ga_cuda_vmm_memory *fresh = new_memory(root, v);
    struct ga_cuda_vmm_memory *gone = NULL;
    if (!fresh)
        return;
    fresh->imported = device >= 0;
    fresh->device = device >= 0 ? (uint32_t)device : 0;
    ga_self_lock(&v->lock);
    struct ga_cuda_vmm_memory *m = memory_locked(v, handle);
    if (m)
        m->references++;
    bool kept = refer_locked(v, handle, m ? m : fresh, &gone);
    if (m && !kept)
        m->references--;
    ga_self_unlock(&v->lock);
    if (m || !kept)
        ga_records_give(&v->unused, fresh);
    else if (device >= 0)
        ga_tell_import(root, (uint32_t)device, 0, 1);
    end(root, v, gone);
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
// again. The memory keeps the reference meanwhile.
ga_result ga_cuda_vmm_release(GA_FN_cuMemRelease *real, ga_memory handle) {
    struct ga_root *root = ga_root_get();
    struct ga_entry e;
    struct ga_entry old;
    struct ga_cuda_vmm_memory *gone = NULL;
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
    if (!ours)
        return result;
    ga_self_lock(&v->lock);
    if (result == GA_CUDA_SUCCESS)
        leave_locked(pointer_of(&e), 1, 0, &gone);
    else
        refer_locked(v, handle, pointer_of(&e), &gone);
    ga_self_unlock(&v->lock);
    end(root, v, gone);
    return result;
}

// The memory that is mapped at an address, which need not be the beginning of a mapping.
static struct ga_cuda_vmm_memory *mapped_at_locked(struct ga_cuda_vmm *v, uint64_t address) {
    struct mapping *found = NULL;
    struct ga_entry e;
    if (ga_table_find(&v->mapped, address, &e))
        return ((struct mapping *)pointer_of(&e))->memory;
    struct ga_walk walk = ga_table_walk(&v->mapped);
    while (ga_table_next(&walk, &e)) {
        struct mapping *n = pointer_of(&e);
        if (address >= n->address && address - n->address < n->bytes)
            found = n;
    }
    return found ? found->memory : NULL;
}

ga_result ga_cuda_vmm_retain(GA_FN_cuMemRetainAllocationHandle *real, ga_memory *handle,
                             void *address) {
    struct ga_root *root = ga_root_get();
    struct ga_cuda_vmm_memory *gone = NULL;
    if (!root)
        return real(handle, address);
    struct ga_cuda_vmm *v = &ga_cuda(root)->vmm;
    ga_self_lock(&v->lock);
    struct ga_cuda_vmm_memory *m = mapped_at_locked(v, (uint64_t)(uintptr_t)address);
    if (m)
        m->references++;
    ga_self_unlock(&v->lock);
    ga_result result = real(handle, address);
    if (!m)
        return result;
    ga_self_lock(&v->lock);
    if (result == GA_CUDA_SUCCESS)
        refer_locked(v, *handle, m, &gone);
    else
        leave_locked(m, 1, 0, &gone);
    ga_self_unlock(&v->lock);
    end(root, v, gone);
    return result;
}

// What is mapped and none of ours is remembered as well, for its length: an unmap may go over
// several mappings.
ga_result ga_cuda_vmm_map(GA_FN_cuMemMap *real, ga_address address, size_t bytes, size_t offset,
                          ga_memory handle, uint64_t flags) {
    struct ga_root *root = ga_root_get();
    struct ga_cuda_vmm_memory *gone = NULL;
    struct ga_entry old = {0};
    if (!root)
        return real(address, bytes, offset, handle, flags);
    struct ga_cuda_vmm *v = &ga_cuda(root)->vmm;
    struct mapping *n = ga_records_take(root, &v->unused_mappings, sizeof *n);
    if (!n)
        return GA_CUDA_OUT_OF_MEMORY;
    ga_self_lock(&v->lock);
    *n = (struct mapping){.address = address, .bytes = bytes, .memory = memory_locked(v, handle)};
    if (n->memory)
        n->memory->mappings++;
    ga_self_unlock(&v->lock);
    ga_result result = real(address, bytes, offset, handle, flags);
    if (result == GA_CUDA_SUCCESS && n->memory && n->memory->imported)
        measure(root, n->memory, offset + bytes);
    struct ga_entry e = {.key = address, .context = (uint64_t)(uintptr_t)n};
    ga_self_lock(&v->lock);
    if (result != GA_CUDA_SUCCESS) {
        if (n->memory)
            leave_locked(n->memory, 0, 1, &gone);
        ga_records_give(&v->unused_mappings, n);
    } else {
        // Without memory to remember it by, what it maps stays charged.
        ga_table_put(&v->mapped, &e, &old);
    }
    if (old.key) { // unmapped out of our sight
        struct mapping *before = pointer_of(&old);
        if (before->memory)
            leave_locked(before->memory, 0, 1, &gone);
        ga_records_give(&v->unused_mappings, before);
    }
    ga_self_unlock(&v->lock);
    end(root, v, gone);
    return result;
}

// Takes the mappings of a range out: they are whole, and next to each other.
static struct mapping *take_range_locked(struct ga_cuda_vmm *v, uint64_t address, uint64_t bytes) {
    struct mapping *taken = NULL;
    struct ga_entry e;
    for (uint64_t done = 0; done < bytes && ga_table_take(&v->mapped, address + done, &e);) {
        struct mapping *n = pointer_of(&e);
        n->next = taken;
        taken = n;
        done += n->bytes;
    }
    return taken;
}

ga_result ga_cuda_vmm_unmap(GA_FN_cuMemUnmap *real, ga_address address, size_t bytes) {
    struct ga_root *root = ga_root_get();
    struct ga_cuda_vmm_memory *gone = NULL;
    struct ga_entry old;
    if (!root)
        return real(address, bytes);
    struct ga_cuda_vmm *v = &ga_cuda(root)->vmm;
    ga_self_lock(&v->lock);
    struct mapping *taken = take_range_locked(v, address, bytes);
    ga_self_unlock(&v->lock);
    ga_result result = real(address, bytes);
    ga_self_lock(&v->lock);
    while (taken) {
        struct mapping *n = taken;
        taken = n->next;
        if (result != GA_CUDA_SUCCESS) {
            struct ga_entry e = {.key = n->address, .context = (uint64_t)(uintptr_t)n};
            ga_table_put(&v->mapped, &e, &old);
            continue;
        }
        if (n->memory)
            leave_locked(n->memory, 0, 1, &gone);
        ga_records_give(&v->unused_mappings, n);
    }
    ga_self_unlock(&v->lock);
    end(root, v, gone);
    return result;
}
