// SPDX-License-Identifier: Apache-2.0
// Records of memory that a handle stands for, and the tables of handles and of mappings.
#include "memory/mapped.h"

#include "core/host.h"
#include "core/records.h"
#include "memory/state.h"

// Record of memory that a handle stands for, or that is mapped. Memory of a device is charged in
// root.blocks under the address of this record. The handle cannot be the key, because the driver
// may reuse it while the memory is still mapped.
struct ga_memory_mapped {
    uint64_t uses;   // number of references to the handle, of mappings, and of uses by threads
    uint64_t host;   // size of host memory in bytes; 0: it is not host memory
    uint32_t device; // number of the device, if it is on an arbitrated one
    bool imported;   // true: another process's memory on an arbitrated device, not charged here
    uint64_t size; // for imported memory: end of the highest mapped range in bytes; 0: never mapped
};

static struct ga_memory_mapped *new_memory(struct ga_root *root) {
    struct ga_memory_mapped *m =
        ga_records_acquire(root, &ga_memory_of(root)->mappings.unused, sizeof *m);
    if (m)
        *m = (struct ga_memory_mapped){.uses = 1};
    return m;
}

static void drop_record(struct ga_root *root, struct ga_memory_mapped *m) {
    ga_records_release(&ga_memory_of(root)->mappings.unused, m);
}

static struct ga_memory_mapped *memory_of(const struct ga_entry *e) {
    return (struct ga_memory_mapped *)(uintptr_t)e->context;
}

static struct ga_key key_of(const struct ga_memory_mapped *m) {
    return (struct ga_key){(uint64_t)(uintptr_t)m, GA_SPACE_MEMORY};
}

void ga_memory_mapped_drop(struct ga_root *root, struct ga_memory_mapped *m, uint64_t uses) {
    struct ga_memory_mappings *v = &ga_memory_of(root)->mappings;
    struct ga_entry entry;
    ga_self_lock(&v->lock);
    m->uses -= uses;
    bool over = m->uses == 0;
    ga_self_unlock(&v->lock);
    if (!over)
        return;
    if (m->imported)
        ga_publish_import(root, m->device, 0 - m->size, m->size ? 0 : -1);
    if (m->host)
        ga_host_release(root, m->host);
    else if (ga_remove_key(root, key_of(m), &entry))
        ga_release_entry(root, &entry); // imported memory has no entry
    drop_record(root, m);
}

struct ga_memory_mapped *ga_memory_mapped_use(struct ga_root *root, uint64_t handle) {
    struct ga_memory_mappings *v = &ga_memory_of(root)->mappings;
    struct ga_entry e;
    ga_self_lock(&v->lock);
    struct ga_memory_mapped *m = ga_table_find(&v->handles, handle, &e) ? memory_of(&e) : NULL;
    if (m)
        m->uses++;
    ga_self_unlock(&v->lock);
    return m;
}

// If the handle stands for other memory in the table, a call that the library does not see has
// released that memory; its references are dropped.
bool ga_memory_mapped_refer(struct ga_root *root, uint64_t handle, struct ga_memory_mapped *m) {
    struct ga_memory_mappings *v = &ga_memory_of(root)->mappings;
    struct ga_entry e;
    struct ga_entry old = {0};
    ga_self_lock(&v->lock);
    bool known = ga_table_find(&v->handles, handle, &e) && memory_of(&e) == m;
    e = (struct ga_entry){
        .key = handle, .bytes = known ? e.bytes + 1 : 1, .context = (uint64_t)(uintptr_t)m};
    bool put = ga_table_put(&v->handles, &e, &old);
    ga_self_unlock(&v->lock);
    if (put && old.key && memory_of(&old) != m)
        ga_memory_mapped_drop(root, memory_of(&old), old.bytes);
    return put;
}

bool ga_memory_mapped_open(struct ga_allocation *c, struct ga_memory_mapped **memory, bool host,
                           int device) {
    *memory = new_memory(c->root);
    if (!*memory)
        return false;
    (*memory)->host = host ? c->entry.bytes : 0;
    if (host ? ga_host_acquire(c->root, c->entry.bytes) : ga_allocation_acquire(c, device))
        return true;
    drop_record(c->root, *memory);
    return false;
}

bool ga_memory_mapped_made(struct ga_allocation *c, struct ga_memory_mapped *m, uint64_t handle) {
    c->entry.key = key_of(m).number;
    c->entry.space = GA_SPACE_MEMORY;
    m->device = c->entry.device;
    if (!m->host && !ga_insert(c->root, &c->entry))
        return false;
    if (ga_memory_mapped_refer(c->root, handle, m))
        return true;
    if (!m->host)
        ga_remove_key(c->root, key_of(m), &c->entry);
    return false;
}

void ga_memory_mapped_undo(const struct ga_allocation *c, struct ga_memory_mapped *m, bool keeps) {
    if (m->host && !keeps)
        ga_host_release(c->root, m->host);
    else if (!m->host && keeps)
        ga_charge_for_good(c->root, &c->entry);
    else if (!m->host)
        ga_allocation_release(c);
    drop_record(c->root, m);
}

// Several threads may import one block at once, and the driver gives all of them one handle. The
// first thread inserts an entry, under the lock; the others add a reference to it. A thread makes
// its record before it locks, and drops the record if there is an entry.
void ga_memory_mapped_imported(struct ga_root *root, uint64_t handle, int device) {
    struct ga_memory_mappings *v = &ga_memory_of(root)->mappings;
    struct ga_memory_mapped *m = new_memory(root);
    struct ga_entry e;
    struct ga_entry old;
    if (m) {
        m->imported = device >= 0;
        m->device = m->imported ? (uint32_t)device : 0;
    }
    ga_self_lock(&v->lock);
    bool known = ga_table_find(&v->handles, handle, &e);
    if (known) {
        memory_of(&e)->uses++;
        e.bytes++;
    } else {
        e = (struct ga_entry){.key = handle, .bytes = 1, .context = (uint64_t)(uintptr_t)m};
    }
    bool put = (known || m) && ga_table_put(&v->handles, &e, &old); // a replacement never fails
    ga_self_unlock(&v->lock);
    if (put && !known && device >= 0)
        ga_publish_import(root, (uint32_t)device, 0, 1);
    else if (m && (known || !put))
        drop_record(root, m);
}

// Uses

struct ga_memory_mapped *ga_memory_mapped_release(struct ga_root *root, uint64_t handle) {
    struct ga_memory_mappings *v = &ga_memory_of(root)->mappings;
    struct ga_entry e;
    struct ga_entry old;
    ga_self_lock(&v->lock);
    bool ours = ga_table_remove(&v->handles, handle, &e);
    if (ours && e.bytes > 1) {
        e.bytes--;
        ga_table_put(&v->handles, &e, &old);
    }
    ga_self_unlock(&v->lock);
    return ours ? memory_of(&e) : NULL;
}

struct ga_memory_mapped *ga_memory_mapped_at(struct ga_root *root, uint64_t address) {
    struct ga_memory_mappings *v = &ga_memory_of(root)->mappings;
    struct ga_memory_mapped *m = NULL;
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

// Notes that imported memory has at least size bytes, because a mapping ends there. The driver does
// not say how large an import is.
static void measure(struct ga_root *root, struct ga_memory_mapped *m, uint64_t size) {
    struct ga_memory_mappings *v = &ga_memory_of(root)->mappings;
    ga_self_lock(&v->lock);
    uint64_t was = m->size;
    if (size > was)
        m->size = size;
    ga_self_unlock(&v->lock);
    if (size > was)
        ga_publish_import(root, m->device, size - was, was ? 0 : -1);
}

void ga_memory_mapped_map(struct ga_root *root, struct ga_memory_mapped *m, uint64_t address,
                          uint64_t bytes, uint64_t offset) {
    struct ga_entry e = {.key = address, .bytes = bytes, .context = (uint64_t)(uintptr_t)m};
    struct ga_entry old = {0};
    if (m && m->imported)
        measure(root, m, offset + bytes);
    // If there is no memory for the entry, the use never ends, and the memory stays charged.
    ga_self_put(&ga_memory_of(root)->mappings.mapped, &e, &old);
    if (old.key && memory_of(&old)) // unmapped by a call that the library does not see
        ga_memory_mapped_drop(root, memory_of(&old), 1);
}

void ga_memory_mapped_unmap(struct ga_root *root, uint64_t address, uint64_t bytes) {
    struct ga_entry e;
    for (uint64_t done = 0;
         done < bytes && ga_self_remove(&ga_memory_of(root)->mappings.mapped, address + done, &e);
         done += e.bytes)
        if (memory_of(&e))
            ga_memory_mapped_drop(root, memory_of(&e), 1);
}
