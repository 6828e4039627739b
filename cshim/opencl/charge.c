// SPDX-License-Identifier: Apache-2.0
#include "opencl/charge.h"

#include "core/admit.h"
#include "opencl/state.h"

__thread struct ga_opencl_call ga_opencl_call;
_Atomic uint32_t ga_opencl_charge_several;

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

struct ga_opencl_charge *ga_opencl_charge_hold(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_charge *held = ga_charge_hold(root, entry);
    struct ga_opencl_charge *charge = (struct ga_opencl_charge *)(void *)held;
    if (!held)
        return NULL;
    held->on = 1u << entry->device;
    charge->give_back = NULL;
    charge->parts = NULL;
    charge->number++;
    charge->generation = atomic_load_explicit(&root->generation, memory_order_relaxed);
    return charge;
}

struct ga_entry ga_opencl_charge_withdraw(struct ga_root *root, struct ga_opencl_charge *charge) {
    charge->generation = 0;
    end(charge);
    return ga_charge_withdraw(root, &charge->held);
}

void ga_opencl_charge_drop(struct ga_root *root, struct ga_opencl_charge *charge) {
    charge->generation = 0;
    end(charge);
    ga_charge_drop(root, &charge->held);
}

static void give_back_bytes(struct ga_root *root, struct ga_opencl_charge *charge) {
    struct ga_opencl_charge *part =
        GA_UNLIKELY(ga_opencl_charge_may_have_parts()) ? parts_of(root, charge) : NULL;
    ga_opencl_charge_drop(root, charge);
    while (part) {
        struct ga_opencl_charge *next = part->held.next;
        ga_opencl_charge_drop(root, part);
        part = next;
    }
}

// False: it cannot be done now, from a handler that has interrupted something.
static bool give_back(struct ga_opencl_charge *charge) {
    struct ga_root *root = ga_root_get();
    if (!root)
        return false;
    if (charge->generation != atomic_load(&root->generation))
        return true;
    if (charge->give_back)
        charge->give_back(root, charge);
    else
        give_back_bytes(root, charge);
    return true;
}

static void stay(struct ga_opencl_charge *charge) {
    charge->held.next = ga_opencl_call.leaving;
    ga_opencl_call.leaving = charge;
}

void ga_opencl_charge_ends(struct ga_opencl_charge *charge) {
    if (!ga_opencl_call_is_on() && give_back(charge))
        return;
    stay(charge);
}

void ga_opencl_charge_give_back(void) {
    struct ga_opencl_charge *charge = ga_opencl_call.leaving;
    ga_opencl_call.leaving = NULL;
    while (charge) {
        struct ga_opencl_charge *next = charge->held.next; // its record is used again
        if (!give_back(charge))
            stay(charge);
        charge = next;
    }
}
