// SPDX-License-Identifier: Apache-2.0
#include "opencl/svm.h"

#include "core/admit.h"
#include "opencl/charge.h"
#include "opencl/memory.h"
#include "opencl/state.h"

static struct ga_key key_of(const void *address) {
    return (struct ga_key){(uint64_t)(uintptr_t)address, GA_SPACE_OPENCL};
}

ga_cl_address ga_opencl_svm_alloc(GA_FN_clSVMAlloc *real, ga_cl_context context, ga_cl_bits flags,
                                  size_t size, ga_cl_uint alignment) {
    struct ga_claim c;
    if (!ga_opencl_memory_ask(&c, context, 0, size, GA_MEMORY_PLAIN))
        return NULL;
    ga_cl_address address = real(context, flags, size, alignment);
    if (!c.root)
        return address;
    c.entry.key = (uint64_t)(uintptr_t)address;
    c.entry.space = GA_SPACE_OPENCL;
    if (address && ga_hold(c.root, &c.entry))
        return address;
    // Better none than what nobody can account for.
    if (address && GA_OPENCL_REAL(clSVMFree))
        GA_OPENCL_REAL(clSVMFree)(context, address);
    ga_claim_drop(&c);
    return NULL;
}

// Out of the table before the driver is called, which may give the address out again. It refuses
// nothing, or says nothing of it.
void ga_opencl_svm_free(GA_FN_clSVMFree *real, ga_cl_context context, ga_cl_address address) {
    struct ga_claim c = {.root = ga_root_get()};
    bool ours = c.root && context && address && ga_withdraw_key(c.root, key_of(address), &c.entry);
    real(context, address);
    if (ours)
        ga_claim_drop(&c);
}

// The blocks of one command, each a charge of its own from then on: once the command is done the
// driver may have given an address out again.
static struct ga_opencl_charge *detach(struct ga_root *root, ga_cl_uint count,
                                       const ga_cl_address *addresses) {
    struct ga_opencl_charge *all = NULL;
    for (ga_cl_uint i = 0; i < count; i++) {
        struct ga_entry entry;
        if (!addresses[i] || !ga_withdraw_key(root, key_of(addresses[i]), &entry))
            continue;
        struct ga_opencl_charge *charge = ga_opencl_charge_hold(root, &entry);
        if (charge) {
            charge->of = (uint64_t)(uintptr_t)addresses[i];
            charge->held.next = all;
            all = charge;
        } else { // without memory to remember it by until then
            ga_release_entry(root, &entry);
        }
    }
    return all;
}

// The driver did not take the command.
static void attach(struct ga_root *root, struct ga_opencl_charge *all) {
    while (all) {
        struct ga_opencl_charge *next = all->held.next;
        uint64_t address = all->of;
        struct ga_entry entry = ga_opencl_charge_withdraw(root, all);
        entry.key = address;
        entry.space = GA_SPACE_OPENCL;
        ga_hold(root, &entry);
        all = next;
    }
}

// Those of a child's parent are zeroed there, and lead nowhere.
static void done(ga_cl_event event, ga_cl_int status, void *arg) {
    (void)event;
    (void)status;
    for (struct ga_opencl_charge *charge = arg; charge;) {
        struct ga_opencl_charge *next = charge->held.next;
        ga_opencl_charge_ends(charge);
        charge = next;
    }
}

// A function of the program's that is called in place of the driver's free frees the blocks itself,
// by clSVMFree (OpenCL 3.0, 5.6.1).
ga_cl_int ga_opencl_svm_enqueue_free(GA_FN_clEnqueueSVMFree *real, ga_cl_queue queue,
                                     ga_cl_uint count, ga_cl_address *addresses, ga_cl_free *free,
                                     void *arg, ga_cl_uint waits, const ga_cl_event *wait_for,
                                     ga_cl_event *event) {
    ga_cl_event own = NULL;
    struct ga_root *root = free || !addresses ? NULL : ga_root_get();
    if (!root)
        return real(queue, count, addresses, free, arg, waits, wait_for, event);
    struct ga_opencl_charge *all = detach(root, count, addresses);
    ga_cl_event *at = event ? event : &own;
    ga_cl_int result = real(queue, count, addresses, free, arg, waits, wait_for, at);
    if (result != GA_CL_SUCCESS)
        attach(root, all);
    else if (all && !GA_OPENCL_ASK(clSetEventCallback, *at, GA_CL_COMPLETE, done, all))
        done(NULL, 0, all); // nobody would say
    if (own && GA_OPENCL_REAL(clReleaseEvent))
        GA_OPENCL_REAL(clReleaseEvent)(own);
    return result;
}
