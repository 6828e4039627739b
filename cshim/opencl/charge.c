// SPDX-License-Identifier: Apache-2.0
#include "opencl/charge.h"

#include "core/admit.h"

__thread struct ga_opencl_call ga_opencl_call;

struct ga_opencl_charge *ga_opencl_charge_hold(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_charge *held = ga_charge_hold(root, entry);
    struct ga_opencl_charge *charge = (struct ga_opencl_charge *)(void *)held;
    if (!held)
        return NULL;
    charge->give_back = NULL;
    charge->generation = atomic_load_explicit(&root->generation, memory_order_relaxed);
    return charge;
}

struct ga_entry ga_opencl_charge_withdraw(struct ga_root *root, struct ga_opencl_charge *charge) {
    charge->generation = 0;
    return ga_charge_withdraw(root, &charge->held);
}

void ga_opencl_charge_drop(struct ga_root *root, struct ga_opencl_charge *charge) {
    charge->generation = 0;
    ga_charge_drop(root, &charge->held);
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
        ga_opencl_charge_drop(root, charge);
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
