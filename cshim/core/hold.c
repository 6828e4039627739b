// SPDX-License-Identifier: Apache-2.0
#include "core/hold.h"

#include "core/admit.h"
#include "core/session.h"

// root.holds has two kinds of entries. That of a device which a thread uses has its key in
// GA_SPACE_PLAIN, and in `context` the thread's id in the kernel, by which its death is noticed.
// That of a primary context which a thread retains has its key in GA_SPACE_RETAINED, and in
// `context` how often.

bool ga_hold_matters(struct ga_root *root, uint32_t device) {
    return ga_session_attach(root, device) == GA_WAY_ASK &&
           atomic_load(&root->slot_scope[device]) == GA_SCOPE_THREAD;
}

static uint64_t key_of(uint32_t thread, uint32_t device) {
    return (uint64_t)thread << 8 | device;
}

static struct ga_key key_of_retained(uint32_t device) {
    return (struct ga_key){key_of(ga_self.number, device), GA_SPACE_RETAINED};
}

// Of what is used

bool ga_hold_take(struct ga_root *root, uint32_t device) {
    struct ga_entry entry = {.key = key_of(ga_self.number, device),
                             .bytes = ga_self.number,
                             .context = ga_self.tid,
                             .device = (uint8_t)device,
                             .kind = GA_HOLD_USED};
    struct ga_entry old;
    if (ga_self_find(&root->holds, entry.key, &old) && old.tag == atomic_load(&root->tag))
        return true;
    if (!ga_admit_object(root, GA_OBJECT_HOLD, device, 0, &entry.tag))
        return false;
    bool put =
        ga_self_put(&root->holds, &entry, &old); // what it replaces is of a session that is over
    if (put)
        ga_self.holds |= 1u << device;
    else
        ga_admit_return(root, GA_OBJECT_HOLD, device, 1, ga_self.number, entry.tag);
    return true;
}

void ga_hold_drop(struct ga_root *root) {
    for (uint32_t d = 0; ga_self.holds != 0; d++) {
        if (ga_self.holds & 1u << d)
            ga_session_return_hold(root, key_of(ga_self.number, d));
        ga_self.holds &= ~(1u << d);
    }
}

// Of what is retained

bool ga_hold_retains(struct ga_root *root, uint32_t device) {
    struct ga_entry entry;
    return ga_self_find_key(&root->holds, key_of_retained(device), &entry);
}

bool ga_hold_ask(struct ga_root *root, uint32_t device, struct ga_hold *hold) {
    *hold = (struct ga_hold){.device = device};
    hold->asked = ga_hold_matters(root, device) && !ga_hold_retains(root, device);
    return !hold->asked || ga_admit_object(root, GA_OBJECT_HOLD, device, 0, &hold->tag);
}

void ga_hold_unask(struct ga_root *root, const struct ga_hold *hold) {
    if (hold->asked)
        ga_admit_return(root, GA_OBJECT_HOLD, hold->device, 1, ga_self.number, hold->tag);
}

// Without memory to remember it by, the thread has no slot of its own.
void ga_hold_retain(struct ga_root *root, const struct ga_hold *hold) {
    struct ga_entry entry = {.key = key_of(ga_self.number, hold->device),
                             .space = GA_SPACE_RETAINED,
                             .bytes = ga_self.number,
                             .tag = hold->tag,
                             .device = (uint8_t)hold->device,
                             .kind = hold->asked ? GA_HOLD_RETAINED : GA_HOLD_UNASKED};
    struct ga_entry old;
    ga_self_lock(&root->retains_lock);
    bool again = ga_table_find_key(&root->holds, key_of_retained(hold->device), &old);
    if (again)
        entry = old;
    entry.context++;
    bool put = ga_table_put(&root->holds, &entry, &old);
    ga_self_unlock(&root->retains_lock);
    if (again || !put)
        ga_hold_unask(root, hold);
}

static bool take_any_locked(struct ga_root *root, uint32_t device, struct ga_entry *entry) {
    uint64_t key = 0;
    struct ga_walk walk = ga_table_walk(&root->holds);
    while (ga_table_next(&walk, entry))
        if (entry->kind != GA_HOLD_USED && entry->device == device)
            key = entry->key;
    return key != 0 &&
           ga_table_take_key(&root->holds, (struct ga_key){key, GA_SPACE_RETAINED}, entry);
}

static void end(struct ga_root *root, const struct ga_entry *entry) {
    if (entry->kind == GA_HOLD_RETAINED)
        ga_admit_return(root, GA_OBJECT_HOLD, entry->device, 1, (uint32_t)entry->bytes, entry->tag);
}

void ga_hold_release(struct ga_root *root, uint32_t device) {
    struct ga_entry entry;
    struct ga_entry old;
    ga_self_lock(&root->retains_lock);
    bool found = ga_table_take_key(&root->holds, key_of_retained(device), &entry) ||
                 take_any_locked(root, device, &entry);
    bool last = found && --entry.context == 0;
    if (found && !last)
        ga_table_put(&root->holds, &entry, &old);
    ga_self_unlock(&root->retains_lock);
    if (last)
        end(root, &entry);
}

void ga_hold_release_all(struct ga_root *root, uint32_t device) {
    struct ga_entry entry;
    for (;;) {
        ga_self_lock(&root->retains_lock);
        bool found = take_any_locked(root, device, &entry);
        ga_self_unlock(&root->retains_lock);
        if (!found)
            return;
        end(root, &entry);
    }
}
