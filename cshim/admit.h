// SPDX-License-Identifier: Apache-2.0
// The core, as every API's glue sees it: admit before the driver is asked, release
// after it gave back. Neither knows what the bytes are for.
#ifndef GA_ADMIT_H
#define GA_ADMIT_H

#include "credit.h"
#include "root.h"
#include "session.h"

// Asks for bytes on a device by the daemon. *tag as for ga_admit.
bool ga_admit_slow(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                   uint16_t *tag);
// Tells the daemon that a free saw NOTIFY.
void ga_admit_notify(struct ga_root *root, uint32_t device, uint32_t slot);

// Takes bytes of a device into use, waiting if the policy says so. False: refused, nothing was
// taken. True: they are taken until ga_release with the same tag. Bytes may be 0.
static inline bool ga_admit(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                            uint16_t *tag) {
    struct ga_view *view = atomic_load_explicit(&root->view, memory_order_acquire);
    if (GA_LIKELY(view != NULL)) {
        uint32_t slot = atomic_load_explicit(&view->slot[device], memory_order_acquire);
        *tag = view->tag;
        // What this thread left in the word is most likely still there.
        if (GA_LIKELY(slot != 0 && ga_credit_take_seen(&view->page->lease[slot - 1], bytes,
                                                       &ga_self.credit_seen)))
            return true;
    }
    return ga_admit_slow(root, device, bytes, kind, tag);
}

// Gives bytes back. What was charged in a session that is over (tag) is nobody's.
static inline void ga_release(struct ga_root *root, uint32_t device, uint64_t bytes, uint16_t tag) {
    struct ga_view *view = atomic_load_explicit(&root->view, memory_order_acquire);
    if (GA_UNLIKELY(view == NULL || view->tag != tag || bytes == 0))
        return;
    uint32_t slot = atomic_load_explicit(&view->slot[device], memory_order_acquire);
    if (GA_UNLIKELY(slot == 0))
        return;
    uint64_t before = ga_credit_give(&view->page->lease[slot - 1], bytes);
    ga_self.credit_seen = before + bytes;
    if (GA_UNLIKELY(before & GA_FLAG_NOTIFY))
        ga_admit_notify(root, device, slot - 1);
}

// Bytes that are taken and in no table yet, for a session that resumes meanwhile. Set before
// admission; cleared once the table has them, or once they went back.
static inline void ga_inflight_set(uint32_t device, uint64_t bytes) {
    struct ga_thread *t = ga_self.thread;
    if (GA_UNLIKELY(t == NULL))
        return;
    atomic_store_explicit(&t->device, device, memory_order_relaxed);
    atomic_store_explicit(&t->inflight, bytes, memory_order_relaxed);
}
static inline void ga_inflight_clear(void) {
    struct ga_thread *t = ga_self.thread;
    if (GA_LIKELY(t != NULL))
        atomic_store_explicit(&t->inflight, 0, memory_order_release);
}

// What can turn pending bytes into credit. Set by the API's glue before its first free in
// stream order.
struct ga_reaper {
    // Gives back what has executed; how many bytes of the device that was.
    uint64_t (*reap)(struct ga_root *root, uint32_t device);
};
void ga_admit_set_reaper(const struct ga_reaper *reaper);

// Takes (count > 0) or gives back (count < 0) streams. False: the cap is reached.
bool ga_admit_streams(struct ga_root *root, uint32_t device, int32_t count, uint16_t *tag);
// Tells of contexts made or destroyed. Opens the lease; never refuses.
void ga_admit_contexts(struct ga_root *root, uint32_t device, int32_t count);

#endif
