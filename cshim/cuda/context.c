// SPDX-License-Identifier: Apache-2.0
// Inserts, finds and ends contexts in the table of contexts (context.h).
#include "cuda/context.h"

#include "core/admit.h"
#include "core/publish.h"
#include "cuda/device.h"
#include "cuda/state.h"

_Atomic(ga_cuda_context_sweep *) ga_cuda_context_sweep_function;

static uint64_t key_of(ga_context context) {
    return (uint64_t)(uintptr_t)context;
}

bool ga_cuda_context_find(struct ga_root *root, uint64_t key, struct ga_entry *entry) {
    return ga_self_find(&ga_cuda(root)->contexts, key, entry);
}

// A green context and the context made from it may have the same handle. Therefore the keys of
// green contexts are in a separate space.
static struct ga_key key_of_green(ga_green green) {
    return (struct ga_key){(uint64_t)(uintptr_t)green, GA_SPACE_CUDA_GREEN};
}

bool ga_cuda_context_find_green(struct ga_root *root, ga_green green, struct ga_entry *entry) {
    return ga_self_find_key(&ga_cuda(root)->contexts, key_of_green(green), entry);
}

// Releases a context at the daemon, if it is counted.
static void release_context(struct ga_root *root, const struct ga_entry *entry) {
    if (entry->kind != GA_CUDA_CONTEXT_FROM_GREEN && entry->kind != GA_CUDA_CONTEXT_UNREPORTED)
        ga_admit_return(root, GA_OBJECT_CONTEXT, entry->device, 1, (uint32_t)entry->bytes,
                        entry->tag);
}

bool ga_cuda_context_ask(struct ga_allocation *c, ga_cu_device device) {
    c->entry = (struct ga_entry){.kind = GA_CUDA_CONTEXT_CREATED};
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
    if (ga_admit_object(c->root, GA_OBJECT_CONTEXT, c->entry.device, c->full, &c->entry.tag))
        return true;
    ga_publish_context_end(c->root, c->entry.device);
    return false;
}

void ga_cuda_context_not_made(const struct ga_allocation *c) {
    if (!c->root)
        return;
    release_context(c->root, &c->entry);
    ga_publish_context_end(c->root, c->entry.device);
}

// Returns a new serial number. Serial numbers are odd, so that they differ from pointers: a block
// of a pool stores its pool in the same field.
static uint64_t next_serial(void) {
    static _Atomic uint64_t numbers;
    return atomic_fetch_add(&numbers, 2) + 1;
}

// Reports whether an entry stands for a context itself: not for a green context, or for a handle
// made from a green context.
static bool is_context(const struct ga_entry *entry) {
    return entry->kind <= GA_CUDA_CONTEXT_CREATED;
}

// Gives an entry its serial number, and inserts it. *old becomes the entry with the same key that
// was replaced. False: no memory.
//
// If another thread has found a primary context in use before the thread that made it comes here,
// the context keeps the serial number that it has. If the handle of a created context is in the
// table already, the old entry is of a context that has ended. The library did not see its end, or
// the ending thread has not removed it yet.
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

// Releases the context of a replaced entry at the daemon. Either it is the same context, which was
// counted twice, or it has ended.
static void after_replacing(struct ga_root *root, const struct ga_entry *old,
                            const struct ga_entry *by) {
    if (!old->key)
        return;
    atomic_fetch_add(&ga_cuda(root)->context_epoch, 1);
    release_context(root, old);
    if (old->context != by->context && is_context(old))
        ga_cuda_context_end(root, old->context);
}

void ga_cuda_context_made(struct ga_allocation *c) {
    struct ga_entry old = {0};
    if (!c->root)
        return;
    // If there is no memory for its entry, the context stays counted until the process ends.
    if (put_made(c->root, &c->entry, &old))
        after_replacing(c->root, &old, &c->entry);
    ga_publish_context_end(c->root, c->entry.device);
}

// Replaces the entry of a context. False: the context is no longer in the table.
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
                             .kind = GA_CUDA_CONTEXT_UNREPORTED};
    struct ga_entry old = {0};
    ga_self_lock(&s->contexts_lock);
    // An existing entry is kept, because its kind may say more than "found in use".
    bool known = ga_table_find(&s->contexts, entry.key, &old) && old.device == device;
    bool put = !known && ga_table_put(&s->contexts, &entry, &old);
    ga_self_unlock(&s->contexts_lock);
    if (known)
        return old;
    if (!put) {
        entry.context = 0;
        return entry;
    }
    // The old entry is of a context on another device, whose end the library did not see. The
    // driver has used its handle again.
    after_replacing(root, &old, &entry);
    ga_admit_object(root, GA_OBJECT_CONTEXT, device, GA_FLAG_NOTICED, &entry.tag);
    entry.kind = kind;
    if (!change(root, &entry)) // another thread has ended the context
        release_context(root, &entry);
    return entry;
}

ga_result ga_cuda_context_created(struct ga_allocation *c, ga_result result,
                                  const ga_context *context) {
    if (result != GA_CUDA_SUCCESS) {
        ga_cuda_context_not_made(c);
        return result;
    }
    c->entry.key = key_of(*context);
    ga_cuda_context_made(c);
    return result;
}

// Removes a handle from the table, raises the epoch, and releases the context.
static void forget(struct ga_root *root, struct ga_key key) {
    struct ga_entry entry;
    bool known = ga_self_remove_key(&ga_cuda(root)->contexts, key, &entry);
    atomic_fetch_add(&ga_cuda(root)->context_epoch, 1);
    if (known)
        release_context(root, &entry);
}

void ga_cuda_context_forget(struct ga_root *root, uint64_t context) {
    forget(root, (struct ga_key){context, GA_SPACE_PLAIN});
}

void ga_cuda_context_forget_green(struct ga_root *root, ga_green green) {
    forget(root, key_of_green(green));
}

// Ends

bool ga_cuda_context_exists(struct ga_root *root, uint64_t serial) {
    bool found = false;
    struct ga_entry e;
    struct ga_walk walk = ga_table_walk(&ga_cuda(root)->contexts);
    while (ga_table_next(&walk, &e))
        found |= e.context == serial && is_context(&e);
    return found;
}

#define BATCH 16

// Removes up to BATCH entries with a serial number: the context's and those of its green contexts.
// Returns how many.
static uint32_t remove_batch(struct ga_root *root, uint64_t serial, struct ga_entry taken[BATCH]) {
    struct ga_cuda_state *s = ga_cuda(root);
    uint32_t count = 0;
    uint32_t removed = 0;
    struct ga_entry e;
    ga_self_lock(&s->contexts_lock);
    struct ga_walk walk = ga_table_walk(&s->contexts);
    while (ga_table_next(&walk, &e))
        if (e.context == serial && count < BATCH)
            taken[count++] = e;
    for (uint32_t i = 0; i < count; i++)
        removed += ga_table_remove_key(&s->contexts, (struct ga_key){taken[i].key, taken[i].space},
                                       &taken[removed]);
    ga_self_unlock(&s->contexts_lock);
    return removed;
}

static void sweep(struct ga_root *root, uint64_t serial) {
    ga_cuda_context_sweep *all = atomic_load(&ga_cuda_context_sweep_function);
    all(root, serial);
}

void ga_cuda_context_end(struct ga_root *root, uint64_t serial) {
    struct ga_entry taken[BATCH];
    uint32_t count;
    do {
        count = serial ? remove_batch(root, serial, taken) : 0;
        // The epoch rises before the sweep: see ga_cuda_context_check.
        atomic_fetch_add(&ga_cuda(root)->context_epoch, 1);
        for (uint32_t i = 0; i < count; i++)
            release_context(root, &taken[i]);
    } while (count > 0);
    if (serial)
        sweep(root, serial);
}

GA_NOINLINE void ga_cuda_context_sweep_if_ended(struct ga_root *root, uint64_t serial) {
    ga_self_enter();
    bool ended = serial & 1 && !ga_cuda_context_exists(root, serial);
    ga_self_leave();
    if (ended)
        sweep(root, serial);
}
