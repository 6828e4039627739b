// SPDX-License-Identifier: Apache-2.0
// Acquires and releases entries of root.thread_slots, under root.thread_slots_lock. session.c
// releases the slots of dead threads.
#include "core/thread_slot.h"

#include "core/admit.h"
#include "core/session.h"

bool ga_thread_slot_matters(struct ga_root *root, uint32_t device) {
    return ga_session_attach(root, device) == GA_WAY_ASK &&
           atomic_load(&root->slot_scope[device]) == GA_SCOPE_THREAD;
}

static uint64_t key_of(uint32_t device) {
    return (uint64_t)ga_self.number << 8 | device;
}

// Reports whether the calling thread has an entry, so that it needs no new slot. An entry of an
// earlier session counts only if it has retains: the message that opened the session has reported
// these.
static bool has(struct ga_root *root, uint32_t device) {
    struct ga_entry e;
    return ga_self_find(&root->thread_slots, key_of(device), &e) &&
           (e.context != 0 || e.tag == atomic_load(&root->tag));
}

// Adds a use or retains to the calling thread's entry, and makes the entry of slot if there is
// none. If there is one, or no memory for one, gives slot back. False: no memory; the thread has no
// slot of its own.
static bool add(struct ga_root *root, const struct ga_thread_slot *slot, bool use,
                uint32_t retains) {
    struct ga_entry e = {.key = key_of(slot->device),
                         .tag = slot->tag,
                         .device = (uint8_t)slot->device,
                         .kind = slot->asked};
    struct ga_entry old;
    ga_self_lock(&root->thread_slots_lock);
    bool again = ga_table_find(&root->thread_slots, e.key, &old) &&
                 (old.context != 0 || !slot->asked || old.tag == slot->tag);
    if (again)
        e = old;
    e.bytes = use ? ga_self.tid : e.bytes;
    e.context += retains;
    bool put = ga_table_put(&root->thread_slots, &e, &old);
    ga_self_unlock(&root->thread_slots_lock);
    if (again || !put)
        ga_thread_slot_unask(root, slot);
    return put;
}

bool ga_thread_slot_ask(struct ga_root *root, uint32_t device, struct ga_thread_slot *slot) {
    *slot = (struct ga_thread_slot){.device = device};
    slot->asked = ga_thread_slot_matters(root, device) && !has(root, device);
    return !slot->asked || ga_admit_object(root, GA_OBJECT_THREAD_SLOT, device, 0, &slot->tag);
}

void ga_thread_slot_unask(struct ga_root *root, const struct ga_thread_slot *slot) {
    if (slot->asked)
        ga_admit_return(root, GA_OBJECT_THREAD_SLOT, slot->device, 1, ga_self.number, slot->tag);
}

bool ga_thread_slot_use(struct ga_root *root, uint32_t device) {
    struct ga_thread_slot slot;
    struct ga_entry e;
    // The retain keeps the thread's slot. The release must end it, whatever context is current
    // then, so that no use is added.
    if (ga_self_find(&root->thread_slots, key_of(device), &e) && e.context != 0)
        return true;
    if (!ga_thread_slot_ask(root, device, &slot))
        return false;
    if (add(root, &slot, true, 0))
        ga_self.used_slots |= 1u << device;
    return true;
}

void ga_thread_slot_retain(struct ga_root *root, const struct ga_thread_slot *slot) {
    add(root, slot, false, 1);
}

void ga_thread_slot_drop(struct ga_root *root) {
    for (uint32_t d = 0; ga_self.used_slots != 0; d++) {
        if (ga_self.used_slots & 1u << d)
            ga_session_release_thread_slot(root, key_of(d), 0);
        ga_self.used_slots &= ~(1u << d);
    }
}

// Returns the key of an entry of a device that has retains: the calling thread's or, if that has
// none, any. 0: there is none.
static uint64_t find_retained(struct ga_root *root, uint32_t device) {
    struct ga_entry e;
    uint64_t key = 0;
    if (ga_self_find(&root->thread_slots, key_of(device), &e) && e.context != 0)
        return e.key;
    struct ga_walk walk = ga_self_walk(&root->thread_slots);
    while (ga_self_next(&walk, &e))
        if (e.context != 0 && e.device == device)
            key = e.key;
    return key;
}

// Subtracts one retain of a device, or all.
static void release(struct ga_root *root, uint32_t device, bool all) {
    for (uint64_t key; (key = find_retained(root, device)) != 0;)
        if (ga_session_release_thread_slot(root, key, all ? UINT64_MAX : 1) && !all)
            return;
}

void ga_thread_slot_release(struct ga_root *root, uint32_t device) {
    release(root, device, false);
}

void ga_thread_slot_release_all(struct ga_root *root, uint32_t device) {
    release(root, device, true);
}
