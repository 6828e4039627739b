// SPDX-License-Identifier: Apache-2.0
#include "cuda/context.h"

#include "core/admit.h"
#include "core/publish.h"
#include "cuda/device.h"
#include "cuda/state.h"

_Atomic(ga_cuda_context_sweep *) ga_cuda_context_sweeps;

static uint64_t key_of(ga_context context) {
    return (uint64_t)(uintptr_t)context;
}

bool ga_cuda_context_find(struct ga_root *root, uint64_t key, struct ga_entry *entry) {
    return ga_self_find(&ga_cuda(root)->contexts, key, entry);
}

// A green context and the context made from it may have the same handle; so green contexts have
// keys in a space of their own.
static struct ga_key key_of_green(ga_green green) {
    return (struct ga_key){(uint64_t)(uintptr_t)green, GA_SPACE_CUDA_GREEN};
}

bool ga_cuda_context_find_green(struct ga_root *root, ga_green green, struct ga_entry *entry) {
    return ga_self_find_key(&ga_cuda(root)->contexts, key_of_green(green), entry);
}

// Gives a context back to the daemon, if it is counted.
static void give_back(struct ga_root *root, const struct ga_entry *entry) {
    if (entry->kind != GA_CUDA_CONTEXT_OF_GREEN && entry->kind != GA_CUDA_CONTEXT_UNTOLD)
        ga_admit_return(root, GA_OBJECT_CONTEXT, entry->device, 1, (uint32_t)entry->bytes,
                        entry->tag);
}

bool ga_cuda_context_ask(struct ga_allocation *c, ga_cu_device device) {
    *c = (struct ga_allocation){.entry.kind = GA_CUDA_CONTEXT_CREATED};
    if (!ga_allocation_begin(c))
        return false;
    int number = c->root ? ga_cuda_device_number(c->root, device) : -1;
    if (number < 0) {
        c->root = NULL; // the driver alone decides
        return true;
    }
    c->entry.device = (uint8_t)number;
    c->entry.bytes = ga_self.number;
    ga_publish_context_begin(c->root, c->entry.device);
    if (ga_admit_object(c->root, GA_OBJECT_CONTEXT, c->entry.device, 0, &c->entry.tag))
        return true;
    ga_publish_context_end(c->root, c->entry.device);
    return false;
}

void ga_cuda_context_unmade(const struct ga_allocation *c) {
    if (!c->root)
        return;
    give_back(c->root, &c->entry);
    ga_publish_context_end(c->root, c->entry.device);
}

// Serial numbers are odd, so that no pointer is one: a block of a pool stores its pool in the same
// place.
static uint64_t next_serial(void) {
    static _Atomic uint64_t numbers;
    return atomic_fetch_add(&numbers, 2) + 1;
}

// Whether an entry is that of a context, and not of another handle for one.
static bool is_context(const struct ga_entry *entry) {
    return entry->kind <= GA_CUDA_CONTEXT_CREATED;
}

// Gives an entry its serial number, and puts it into the table. If another thread has found a
// primary context in use before its maker comes here, the context has a number, and keeps it. If
// the handle of a created context is in the table, it is that of a context that has ended: by a
// call that the library does not see, or in another thread, which has not taken it out of the table
// yet. False: no memory.
static bool put_made(struct ga_root *root, struct ga_entry *entry, struct ga_entry *old) {
    struct ga_cuda_state *s = ga_cuda(root);
    uint64_t fresh = next_serial();
    ga_self_lock(&s->contexts_lock);
    bool known = ga_table_find(&s->contexts, entry->key, old) && old->device == entry->device;
    if (is_context(entry))
        entry->context = known && entry->kind == GA_CUDA_CONTEXT_PRIMARY ? old->context : fresh;
    bool put = ga_table_put(&s->contexts, entry, old);
    ga_self_unlock(&s->contexts_lock);
    return put;
}

// Gives back the context whose entry was replaced by another one: it is the same context, which is
// now counted twice, or it has ended.
static void replaced(struct ga_root *root, const struct ga_entry *old, const struct ga_entry *by) {
    if (!old->key)
        return;
    atomic_fetch_add(&ga_cuda(root)->context_epoch, 1);
    give_back(root, old);
    if (old->context != by->context && is_context(old))
        ga_cuda_context_end(root, old->context);
}

void ga_cuda_context_made(struct ga_allocation *c) {
    struct ga_entry old = {0};
    if (!c->root)
        return;
    // Without memory for its entry the context stays counted for good.
    if (put_made(c->root, &c->entry, &old))
        replaced(c->root, &old, &c->entry);
    ga_publish_context_end(c->root, c->entry.device);
}

// Replaces the entry of a context in the table. False: the context is not in the table any more.
static bool change(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_cuda_state *s = ga_cuda(root);
    struct ga_entry old;
    ga_self_lock(&s->contexts_lock);
    bool there = ga_table_find(&s->contexts, entry->key, &old) && old.context == entry->context;
    if (there)
        ga_table_put(&s->contexts, entry, &old);
    ga_self_unlock(&s->contexts_lock);
    return there;
}

// If there is no memory for the entry, the context gets serial number 0, and is not counted.
struct ga_entry ga_cuda_context_notice(struct ga_root *root, ga_context context, uint32_t device,
                                       uint8_t kind) {
    struct ga_cuda_state *s = ga_cuda(root);
    struct ga_entry entry = {.key = key_of(context),
                             .bytes = ga_self.number,
                             .context = next_serial(),
                             .device = (uint8_t)device,
                             .kind = GA_CUDA_CONTEXT_UNTOLD};
    struct ga_entry old = {0};
    ga_self_lock(&s->contexts_lock);
    // An entry that is there may say more than "found in use", and is not replaced.
    bool known = ga_table_find(&s->contexts, entry.key, &old) && old.device == device;
    bool put = !known && ga_table_put(&s->contexts, &entry, &old);
    ga_self_unlock(&s->contexts_lock);
    if (known)
        return old;
    if (!put) {
        entry.context = 0;
        return entry;
    }
    // The driver gave the handle of a context that ended unseen to one on another device.
    replaced(root, &old, &entry);
    ga_admit_object(root, GA_OBJECT_CONTEXT, device, GA_FLAG_NOTICED, &entry.tag);
    entry.kind = kind;
    if (!change(root, &entry)) // another thread has ended it meanwhile
        give_back(root, &entry);
    return entry;
}

ga_result ga_cuda_context_created(struct ga_allocation *c, ga_result result,
                                  const ga_context *context) {
    if (result != GA_CUDA_SUCCESS) {
        ga_cuda_context_unmade(c);
        return result;
    }
    c->entry.key = key_of(*context);
    ga_cuda_context_made(c);
    return result;
}

static void forget(struct ga_root *root, struct ga_key key) {
    struct ga_entry entry;
    bool known = ga_self_remove_key(&ga_cuda(root)->contexts, key, &entry);
    atomic_fetch_add(&ga_cuda(root)->context_epoch, 1);
    if (known)
        give_back(root, &entry);
}

void ga_cuda_context_forget(struct ga_root *root, uint64_t context) {
    forget(root, (struct ga_key){context, GA_SPACE_PLAIN});
}

void ga_cuda_context_forget_green(struct ga_root *root, ga_green green) {
    forget(root, key_of_green(green));
}

// Ends

bool ga_cuda_context_lives(struct ga_root *root, uint64_t serial) {
    bool found = false;
    struct ga_entry e;
    struct ga_walk walk = ga_table_walk(&ga_cuda(root)->contexts);
    while (ga_table_next(&walk, &e))
        found |= e.context == serial && is_context(&e);
    return found;
}

#define BATCH 16

// Takes up to BATCH entries with a serial number out of the table: those of the context, and of
// green contexts that have its number. Returns how many.
static uint32_t take_some(struct ga_root *root, uint64_t serial, struct ga_entry taken[BATCH]) {
    struct ga_cuda_state *s = ga_cuda(root);
    uint32_t count = 0;
    uint32_t gone = 0;
    struct ga_entry e;
    ga_self_lock(&s->contexts_lock);
    struct ga_walk walk = ga_table_walk(&s->contexts);
    while (ga_table_next(&walk, &e))
        if (e.context == serial && count < BATCH)
            taken[count++] = e;
    for (uint32_t i = 0; i < count; i++)
        gone += ga_table_remove_key(&s->contexts, (struct ga_key){taken[i].key, taken[i].space},
                                    &taken[gone]);
    ga_self_unlock(&s->contexts_lock);
    return gone;
}

static void sweep(struct ga_root *root, uint64_t serial) {
    ga_cuda_context_sweep *all = atomic_load(&ga_cuda_context_sweeps);
    all(root, serial);
}

void ga_cuda_context_end(struct ga_root *root, uint64_t serial) {
    struct ga_entry taken[BATCH];
    uint32_t count;
    do {
        count = serial ? take_some(root, serial, taken) : 0;
        // Before the sweep: see ga_cuda_context_check.
        atomic_fetch_add(&ga_cuda(root)->context_epoch, 1);
        for (uint32_t i = 0; i < count; i++)
            give_back(root, &taken[i]);
    } while (count > 0);
    if (serial)
        sweep(root, serial);
}

GA_NOINLINE void ga_cuda_context_look(struct ga_root *root, uint64_t serial) {
    ga_self_enter();
    bool ended = serial & 1 && !ga_cuda_context_lives(root, serial);
    ga_self_leave();
    if (ended)
        sweep(root, serial);
}
