// SPDX-License-Identifier: Apache-2.0
// The core, as every API's glue sees it: admit before the driver is asked, release
// after it gave back. Neither knows what the bytes are for.
#ifndef GA_ADMIT_H
#define GA_ADMIT_H

#include "core/interface.h"
#include "core/publish.h"
#include "core/release.h"
#include "core/root.h"
#include "core/session.h"

// Asks for bytes on a device by the daemon. *tag as for ga_admit.
bool ga_admit_slow(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                   uint16_t *tag);

// Admits bytes as ga_admit does, but never waits, and does not tell the user of a refusal, because
// the caller has another way to get them.
bool ga_admit_at_once(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                      uint16_t *tag);

// ga_admit from what the credit word has; nobody is asked.
static inline bool ga_admit_fast(struct ga_root *root, uint32_t device, uint64_t bytes,
                                 uint16_t *tag) {
    ga_move_begin(root);
    struct ga_view *view = atomic_load_explicit(&root->view, memory_order_acquire);
    if (GA_LIKELY(view != NULL)) {
        uint32_t slot = atomic_load_explicit(&view->slot[device], memory_order_acquire);
        *tag = view->tag;
        // What this thread left in the word is most likely still there.
        if (GA_LIKELY(slot != 0 && ga_credit_acquire_seen(&view->page->lease[slot - 1], bytes,
                                                          &ga_self.credit_seen))) {
            ga_inflight_add(device, bytes);
            ga_move_end();
            return true;
        }
    }
    ga_move_end();
    return false;
}

// Takes bytes of a device into use, waiting if the policy says so. False: refused, nothing was
// taken. True: they are on their way (inflight) until ga_insert has them in a table or ga_release
// gives them back. Bytes may be 0. tag: which session they are charged in.
static inline bool ga_admit(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                            uint16_t *tag) {
    return GA_LIKELY(ga_admit_fast(root, device, bytes, tag)) ||
           ga_admit_slow(root, device, bytes, kind, tag);
}

// Gives back bytes that were on their way.
static inline void ga_release(struct ga_root *root, uint32_t device, uint64_t bytes, uint16_t tag) {
    ga_move_begin(root);
    uint32_t notify = ga_release_in_move(root, device, bytes, tag);
    ga_inflight_add(device, 0 - bytes);
    ga_move_end();
    if (GA_UNLIKELY(notify))
        ga_session_freed(root, notify - 1);
}

// The same of an entry.
static inline void ga_release_entry(struct ga_root *root, const struct ga_entry *entry) {
    ga_release(root, entry->device, entry->bytes, entry->tag);
}

// Charges the bytes of an entry, which are in flight, until the process ends: there is no memory to
// record what the program has got for them, so that no later call can tell that it ends.
static inline void ga_charge_for_good(struct ga_root *root, const struct ga_entry *entry) {
    ga_move_begin(root);
    if (entry->tag == atomic_load(&root->tag)) // else nothing of its session is charged any more
        atomic_fetch_add(&root->stranded[entry->device], entry->bytes);
    ga_inflight_add(entry->device, 0 - entry->bytes);
    ga_move_end();
}

// Makes the bytes of an entry, which are on their way, as many as that. False: what it lacks was
// refused.
bool ga_admit_change(struct ga_root *root, struct ga_entry *entry, uint64_t bytes);

// An allocation in flight: begin and acquire, then the driver's call, then its entry is inserted,
// or its bytes are released.
struct ga_allocation {
    struct ga_root *root;  // NULL: not arbitrated, the driver alone decides
    struct ga_entry entry; // its key is known once the driver has answered
    uint64_t epoch;        // number that the interface reads before the driver's call
};

// Finds the root. False: the allocation is refused, because nothing can be accounted for.
static inline bool ga_allocation_begin(struct ga_allocation *c) {
    c->root = ga_root_get();
    return GA_LIKELY(c->root != NULL) || !ga_root_denies();
}

// Acquires the entry's bytes of a device, by its number; −1: the device is not arbitrated. False:
// refused, and nothing was acquired.
static inline bool ga_allocation_acquire(struct ga_allocation *c, int device) {
    if (GA_UNLIKELY(device < 0)) {
        c->root = NULL;
        return true;
    }
    c->entry.device = (uint8_t)device;
    return ga_admit(c->root, (uint32_t)device, c->entry.bytes, c->entry.kind, &c->entry.tag);
}

static inline void ga_allocation_release(const struct ga_allocation *c) {
    ga_release_entry(c->root, &c->entry);
}

// A block was freed out of our sight; its bytes are on their way.
void ga_admit_lost(struct ga_root *root, const struct ga_entry *entry);

// Puts a block into the table: its bytes are no longer on their way, but held. False: no memory.
// An entry that it replaces was freed out of our sight; its bytes go where they came from.
static inline bool ga_insert(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_entry old;
    ga_move_begin(root);
    bool put = ga_table_put(&root->blocks, entry, &old);
    if (GA_LIKELY(put))
        ga_inflight_add(entry->device, 0 - entry->bytes);
    if (GA_UNLIKELY(old.key != 0))
        ga_inflight_add(old.device, old.bytes);
    ga_move_end();
    if (GA_UNLIKELY(old.key != 0))
        ga_admit_lost(root, &old);
    if (GA_UNLIKELY(put && entry->kind == GA_MEMORY_MANAGED))
        ga_publish_managed(root, entry->device, entry->bytes);
    ga_publish_more(root);
    return put;
}

// Takes the block with a key out of the table; its bytes are in flight from then on. False: the
// table has no such block.
static inline bool ga_remove_key(struct ga_root *root, struct ga_key key, struct ga_entry *entry) {
    ga_move_begin(root);
    bool found = ga_table_remove_key(&root->blocks, key, entry);
    if (GA_LIKELY(found))
        ga_inflight_add(entry->device, entry->bytes);
    ga_move_end();
    if (GA_UNLIKELY(found && entry->kind == GA_MEMORY_MANAGED))
        ga_publish_managed(root, entry->device, 0 - entry->bytes);
    return found;
}
// Takes out the block at an address, as ga_remove_key.
static inline bool ga_remove(struct ga_root *root, uint64_t address, struct ga_entry *entry) {
    return ga_remove_key(root, (struct ga_key){address, GA_SPACE_PLAIN}, entry);
}

// So many contexts, from this one on, have ended, and with them all blocks that lived there.
void ga_admit_sweep(struct ga_root *root, uint64_t context, uint32_t contexts);

// More than the whole limit: it can never be had.
bool ga_admit_exceeds(struct ga_root *root, uint32_t device, uint64_t bytes);

// An object is taken by the thread that asks, before the driver makes it, and may be waited for.
// flags: 0, or GA_FLAG_NOTICED: it exists already, and nothing is refused or waited for. *tag: the
// session that it is counted in. Opens the lease. False: refused, and nothing was taken.
bool ga_admit_object(struct ga_root *root, enum ga_object what, uint32_t device, uint32_t flags,
                     uint16_t *tag);
// Objects go back in the name of the thread that took them (maker: ga_self.number, kept in
// ga_entry.bytes), whoever destroys them; nothing, where their session (tag) is over. Never waits.
void ga_admit_return(struct ga_root *root, enum ga_object what, uint32_t device, int32_t count,
                     uint32_t maker, uint16_t tag);

#endif
