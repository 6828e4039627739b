// SPDX-License-Identifier: Apache-2.0
#include "core/hold.h"

#include "core/admit.h"
#include "core/session.h"

bool ga_hold_matters(struct ga_root *root, uint32_t device) {
    return ga_session_attach(root, device) == GA_WAY_ASK &&
           atomic_load(&root->slot_scope[device]) == GA_SCOPE_THREAD;
}

static uint64_t key_of(uint32_t device) {
    return (uint64_t)ga_self.number << 8 | device;
}

// Reports whether the calling thread has an entry, so that it needs no new hold. An entry of an
// earlier session counts only if it has retains: the message that opened the session has reported
// these.
static bool has(struct ga_root *root, uint32_t device) {
    struct ga_entry e;
    return ga_self_find(&root->holds, key_of(device), &e) &&
           (e.context != 0 || e.tag == atomic_load(&root->tag));
}

// Adds a use or retains to the calling thread's entry, and makes the entry of hold if there is
// none. If there is one, or no memory for one, gives hold back. False: no memory; the thread has no
// slot of its own.
static bool add(struct ga_root *root, const struct ga_hold *hold, bool use, uint32_t retains) {
    struct ga_entry e = {.key = key_of(hold->device),
                         .tag = hold->tag,
                         .device = (uint8_t)hold->device,
                         .kind = hold->asked};
    struct ga_entry old;
    ga_self_lock(&root->holds_lock);
    bool again = ga_table_find(&root->holds, e.key, &old) &&
                 (old.context != 0 || !hold->asked || old.tag == hold->tag);
    if (again)
        e = old;
    e.bytes = use ? ga_self.tid : e.bytes;
    e.context += retains;
    bool put = ga_table_put(&root->holds, &e, &old);
    ga_self_unlock(&root->holds_lock);
    if (again || !put)
        ga_hold_unask(root, hold);
    return put;
}

bool ga_hold_ask(struct ga_root *root, uint32_t device, struct ga_hold *hold) {
    *hold = (struct ga_hold){.device = device};
    hold->asked = ga_hold_matters(root, device) && !has(root, device);
    return !hold->asked || ga_admit_object(root, GA_OBJECT_HOLD, device, 0, &hold->tag);
}

void ga_hold_unask(struct ga_root *root, const struct ga_hold *hold) {
    if (hold->asked)
        ga_admit_return(root, GA_OBJECT_HOLD, hold->device, 1, ga_self.number, hold->tag);
}

bool ga_hold_use(struct ga_root *root, uint32_t device) {
    struct ga_hold hold;
    struct ga_entry e;
    // The retain keeps the thread's slot. The release must end it, whatever context is current
    // then, so that no use is added.
    if (ga_self_find(&root->holds, key_of(device), &e) && e.context != 0)
        return true;
    if (!ga_hold_ask(root, device, &hold))
        return false;
    if (add(root, &hold, true, 0))
        ga_self.holds |= 1u << device;
    return true;
}

void ga_hold_retain(struct ga_root *root, const struct ga_hold *hold) {
    add(root, hold, false, 1);
}

void ga_hold_drop(struct ga_root *root) {
    for (uint32_t d = 0; ga_self.holds != 0; d++) {
        if (ga_self.holds & 1u << d)
            ga_session_return_hold(root, key_of(d), 0);
        ga_self.holds &= ~(1u << d);
    }
}

// Returns the key of an entry of a device that has retains: the calling thread's or, if that has
// none, any. 0: there is none.
static uint64_t find_retained(struct ga_root *root, uint32_t device) {
    struct ga_entry e;
    uint64_t key = 0;
    if (ga_self_find(&root->holds, key_of(device), &e) && e.context != 0)
        return e.key;
    struct ga_walk walk = ga_self_walk(&root->holds);
    while (ga_self_next(&walk, &e))
        if (e.context != 0 && e.device == device)
            key = e.key;
    return key;
}

// Subtracts one retain of a device, or all.
static void release(struct ga_root *root, uint32_t device, bool all) {
    for (uint64_t key; (key = find_retained(root, device)) != 0;)
        if (ga_session_return_hold(root, key, all ? UINT64_MAX : 1) && !all)
            return;
}

void ga_hold_release(struct ga_root *root, uint32_t device) {
    release(root, device, false);
}

void ga_hold_release_all(struct ga_root *root, uint32_t device) {
    release(root, device, true);
}
