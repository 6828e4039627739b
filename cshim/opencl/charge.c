// SPDX-License-Identifier: Apache-2.0
#include "opencl/charge.h"

#include "core/admit.h"
#include "opencl/state.h"

__thread struct ga_opencl_call ga_opencl_call;
_Atomic uint32_t ga_opencl_charge_several;

static uint64_t key_of(const struct ga_opencl_charge *charge) {
    return (uint64_t)(uintptr_t)charge | GA_OPENCL_KEY;
}

static void end(struct ga_opencl_charge *charge) {
    charge->number += charge->number & 1;
}

// Its parts, and no more are added.
static struct ga_opencl_charge *parts_of(struct ga_root *root, struct ga_opencl_charge *charge) {
    struct ga_opencl_state *state = ga_opencl(root);
    ga_self_lock(&state->lock);
    struct ga_opencl_charge *part = charge->parts;
    charge->parts = NULL;
    end(charge);
    ga_self_unlock(&state->lock);
    return part;
}

static void give_back_bytes(struct ga_root *root, struct ga_opencl_charge *charge) {
    struct ga_opencl_charge *part =
        ga_opencl_charge_may_have_parts() ? parts_of(root, charge) : NULL;
    ga_opencl_charge_drop(root, charge);
    while (part) {
        struct ga_opencl_charge *next = part->next;
        ga_opencl_charge_drop(root, part);
        part = next;
    }
}

struct ga_opencl_charge *ga_opencl_charge_hold(struct ga_root *root, struct ga_entry *entry) {
    struct ga_records *records = &ga_opencl(root)->charges;
    struct ga_opencl_charge *charge = ga_records_take(root, records, sizeof *charge);
    if (!charge)
        return NULL;
    *charge = (struct ga_opencl_charge){.generation = atomic_load(&root->generation),
                                        .give_back = give_back_bytes,
                                        .number = charge->number + 1,
                                        .bytes = entry->bytes,
                                        .kind = entry->kind,
                                        .on = 1u << entry->device};
    entry->key = key_of(charge);
    if (ga_hold(root, entry))
        return charge;
    end(charge);
    ga_records_give(records, charge);
    return NULL;
}

bool ga_opencl_charge_withdraw(struct ga_root *root, struct ga_opencl_charge *charge,
                               struct ga_entry *entry) {
    bool found = ga_withdraw(root, key_of(charge), entry);
    charge->generation = 0;
    end(charge);
    ga_records_give(&ga_opencl(root)->charges, charge);
    return found;
}

void ga_opencl_charge_drop(struct ga_root *root, struct ga_opencl_charge *charge) {
    struct ga_entry entry;
    if (ga_opencl_charge_withdraw(root, charge, &entry))
        ga_release(root, entry.device, entry.bytes, entry.tag);
}

// False: it cannot be done now, from a handler that has interrupted something.
static bool give_back(struct ga_opencl_charge *charge) {
    struct ga_root *root = ga_root_get();
    if (!root)
        return false;
    if (charge->generation == atomic_load(&root->generation))
        charge->give_back(root, charge);
    return true;
}

void ga_opencl_charge_ends(struct ga_opencl_charge *charge) {
    if (!ga_opencl_call_is_on() && give_back(charge))
        return;
    charge->next = ga_opencl_call.leaving;
    ga_opencl_call.leaving = charge;
}

void ga_opencl_charge_give_back(void) {
    struct ga_opencl_charge *charge = ga_opencl_call.leaving;
    ga_opencl_call.leaving = NULL;
    while (charge) {
        struct ga_opencl_charge *next = charge->next; // its record is used again
        if (!give_back(charge)) {
            charge->next = ga_opencl_call.leaving;
            ga_opencl_call.leaving = charge;
        }
        charge = next;
    }
}
