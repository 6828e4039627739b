// SPDX-License-Identifier: Apache-2.0
// Admission, as the wrappers of all interfaces use it. A wrapper admits bytes before it calls the
// driver, and releases them after the driver has freed the memory. Admission does not know what the
// bytes are for.
//
// The fast path here takes bytes from the credit word without a system call. admit.c asks the
// daemon; release.h returns bytes to the credit word. Table entries and bytes in flight change
// together between ga_move_begin and ga_move_end (root.h). This file calls no driver.
#ifndef GA_ADMIT_H
#define GA_ADMIT_H

#include "core/interface.h"
#include "core/publish.h"
#include "core/release.h"
#include "core/root.h"
#include "core/session.h"

// Admits bytes on a device by a request to the daemon. full: 0, or a flag of ga_admit_again. *tag
// is as for ga_admit.
bool ga_admit_slow(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                   uint32_t full, uint16_t *tag);

// Admits bytes as ga_admit does, but never waits. Does not report a refusal to the user, because
// the caller has another way to get the bytes.
bool ga_admit_no_wait(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                      uint16_t *tag);

// Decides after the driver's answer whether a wrapper must start again: ask, call the driver, and
// account for the result. lacks: the driver had no memory for what was admitted, which the wrapper
// has released. root NULL: nothing was admitted. All wrappers that take device memory or make
// contexts use this.
//
// *full is 0 before the first request, and set here for the next one, which must carry it as a
// flag. After the driver's first refusal it is GA_FLAG_DRIVER_FULL: the daemon reads the device,
// and if the policy says so, the request waits until the device shows room. After the second one it
// is GA_FLAG_DRIVER_FULL_AGAIN: the daemon refuses, and names the programs that the device shows.
bool ga_admit_again_slow(struct ga_root *root, uint32_t *full);
static inline bool ga_admit_again(struct ga_root *root, uint32_t *full, bool lacks) {
    return GA_UNLIKELY(lacks) && root && ga_admit_again_slow(root, full);
}

// Admits bytes out of the credit word, without asking the daemon. False: nothing was acquired.
static inline bool ga_admit_fast(struct ga_root *root, uint32_t device, uint64_t bytes,
                                 uint16_t *tag) {
    ga_move_begin(root);
    struct ga_view *view = atomic_load_explicit(&root->view, memory_order_acquire);
    if (GA_LIKELY(view != NULL)) {
        uint32_t slot = atomic_load_explicit(&view->slot[device], memory_order_acquire);
        *tag = view->tag;
        // The value that this thread last wrote to the credit word is most likely still there.
        if (GA_LIKELY(slot != 0 && ga_credit_acquire_seen(&view->page->lease[slot - 1], bytes,
                                                          &ga_self.credit_seen))) {
            ga_inflight_add(device, bytes);
            ga_move_end();
            ga_self_grant(device);
            return true;
        }
    }
    ga_move_end();
    return false;
}

// Admits bytes of a device, and waits if the policy says so. `bytes` may be 0. False: refused;
// nothing was acquired. True: the bytes are in flight until ga_insert puts them into the table or
// ga_release returns them. *tag: the session in which they are charged.
static inline bool ga_admit(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                            uint16_t *tag) {
    return GA_LIKELY(ga_admit_fast(root, device, bytes, tag)) ||
           ga_admit_slow(root, device, bytes, kind, 0, tag);
}

// Returns bytes that were in flight.
static inline void ga_release(struct ga_root *root, uint32_t device, uint64_t bytes, uint16_t tag) {
    ga_move_begin(root);
    uint32_t notify = ga_release_in_move(root, device, bytes, tag);
    ga_inflight_add(device, 0 - bytes);
    ga_move_end();
    if (GA_UNLIKELY(notify))
        ga_session_freed(root, notify - 1);
}

// Returns the bytes of an entry that were in flight.
static inline void ga_release_entry(struct ga_root *root, const struct ga_entry *entry) {
    ga_release(root, entry->device, entry->bytes, entry->tag);
}

// Charges the bytes of an entry, which are in flight, until the process ends. Called when there is
// no memory for a record of the block, so that no later call can recognise its free.
static inline void ga_charge_for_good(struct ga_root *root, const struct ga_entry *entry) {
    ga_move_begin(root);
    if (entry->tag == atomic_load(&root->tag)) // otherwise its session is over, and charges nothing
        atomic_fetch_add(&root->stranded[entry->device], entry->bytes);
    ga_inflight_add(entry->device, 0 - entry->bytes);
    ga_move_end();
}

// Changes the bytes of an entry in flight to `bytes`. False: the additional bytes were refused.
bool ga_admit_change(struct ga_root *root, struct ga_entry *entry, uint64_t bytes);

// Allocation in flight. The wrapper calls begin and acquire, then the driver. After that it inserts
// the entry or releases the bytes, and looks at ga_admit_again.
struct ga_allocation {
    struct ga_root *root;  // NULL: not arbitrated; only the driver decides
    struct ga_entry entry; // key: set after the driver has answered
    uint64_t epoch; // epoch of the contexts, which some interfaces read before they call the driver
    uint32_t full;  // ga_admit_again; 0: the driver has not been called
};

// Finds the root. False: the allocation must be refused, because it cannot be accounted for.
static inline bool ga_allocation_begin(struct ga_allocation *c) {
    c->root = ga_root_get();
    return GA_LIKELY(c->root != NULL) || !ga_root_denies();
}

// Acquires the entry's bytes of a device number; −1: the device is not arbitrated. False: refused;
// nothing was acquired.
static inline bool ga_allocation_acquire(struct ga_allocation *c, int device) {
    if (GA_UNLIKELY(device < 0)) {
        c->root = NULL;
        return true;
    }
    c->entry.device = (uint8_t)device;
    struct ga_entry *e = &c->entry;
    return GA_LIKELY(c->full == 0 && ga_admit_fast(c->root, (uint32_t)device, e->bytes, &e->tag)) ||
           ga_admit_slow(c->root, (uint32_t)device, e->bytes, e->kind, c->full, &e->tag);
}

static inline void ga_allocation_release(const struct ga_allocation *c) {
    ga_release_entry(c->root, &c->entry);
}

// Releases a block that was freed by a call that the library does not see. Its bytes are in flight.
void ga_admit_unseen_free(struct ga_root *root, const struct ga_entry *entry);

// Inserts a block into the table: its bytes are held, and no longer in flight. False: no memory.
// Another entry with this key was freed by a call that the library does not see; its bytes are
// released.
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
        ga_admit_unseen_free(root, &old);
    if (GA_UNLIKELY(put && entry->kind == GA_MEMORY_MANAGED))
        ga_publish_managed(root, entry->device, entry->bytes);
    ga_publish_more(root);
    ga_publish_call(root, entry->device);
    return put;
}

// Removes the block with a key from the table. Its bytes are in flight from then on. False: the
// table has no such block.
static inline bool ga_remove_key(struct ga_root *root, struct ga_key key, struct ga_entry *entry) {
    ga_move_begin(root);
    bool found = ga_table_remove_key(&root->blocks, key, entry);
    if (GA_LIKELY(found))
        ga_inflight_add(entry->device, entry->bytes);
    ga_move_end();
    if (GA_UNLIKELY(found && entry->kind == GA_MEMORY_MANAGED))
        ga_publish_managed(root, entry->device, 0 - entry->bytes);
    if (GA_LIKELY(found))
        ga_publish_call(root, entry->device);
    return found;
}
// Removes the block at an address, like ga_remove_key.
static inline bool ga_remove(struct ga_root *root, uint64_t address, struct ga_entry *entry) {
    return ga_remove_key(root, (struct ga_key){address, GA_SPACE_PLAIN}, entry);
}

// Removes and releases all blocks of `contexts` contexts that have ended; `context` is the serial
// number of the first.
void ga_admit_sweep(struct ga_root *root, uint64_t context, uint32_t contexts);

// Reports whether bytes exceed the whole limit of a device, so that they can never be granted.
bool ga_admit_exceeds(struct ga_root *root, uint32_t device, uint64_t bytes);

// Acquires an object for the calling thread before the driver makes it, and waits if the policy
// says so. Opens the lease. flags: 0, or GA_FLAG_NOTICED for an object that exists already, which
// is neither refused nor waited for. *tag: the session that counts it. False: refused; nothing was
// acquired.
bool ga_admit_object(struct ga_root *root, enum ga_object what, uint32_t device, uint32_t flags,
                     uint16_t *tag);
// Returns objects in the name of the thread that acquired them, whichever thread destroys them.
// maker: that thread's ga_self.number, as kept in ga_entry.bytes. Does nothing if their session
// (tag) is over. Never waits.
void ga_admit_return(struct ga_root *root, enum ga_object what, uint32_t device, int32_t count,
                     uint32_t maker, uint16_t tag);

#endif
