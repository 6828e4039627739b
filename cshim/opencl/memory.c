// SPDX-License-Identifier: Apache-2.0
#include "opencl/memory.h"

#include "core/admit.h"
#include "opencl/charge.h"
#include "opencl/device.h"

bool ga_opencl_memory_ask(struct ga_claim *c, ga_cl_context context, ga_cl_bits flags,
                          uint64_t bytes, uint32_t kind) {
    *c = (struct ga_claim){.entry = {.bytes = bytes, .kind = (uint8_t)kind}};
    if (bytes == 0)
        return true;
    if (!ga_claim_begin(c))
        return false;
    ga_cl_device first = NULL;
    int device = c->root ? ga_opencl_device_first(c->root, context, &first) : -1;
    // The program's own memory is what the processor works in.
    if (device >= 0 && flags & GA_CL_MEM_USE_HOST_PTR && ga_opencl_device_computes_here(first))
        device = -1;
    if (!ga_claim_take(c, device))
        return false;
    if (c->root)
        ga_tell_soft(c->root); // a driver may take it when it is first used, and where
    return true;
}

static void ended(ga_cl_mem memory, void *arg) {
    (void)memory;
    ga_opencl_charge_ends(arg);
}

// False: nothing would say when it ends, or there is no memory to remember it by.
static bool keep(const struct ga_claim *c, ga_cl_mem memory) {
    struct ga_opencl_charge *charge = ga_opencl_charge_hold(c->root, &c->entry);
    if (!charge)
        return false;
    if (GA_OPENCL_ASK(clSetMemObjectDestructorCallback, memory, ended, charge))
        return true;
    ga_opencl_charge_withdraw(c->root, charge);
    return false;
}

ga_cl_mem ga_opencl_memory_made(struct ga_claim *c, ga_cl_mem memory, ga_cl_int *status) {
    if (!c->root || (memory && keep(c, memory)))
        return memory;
    // Better none than what nobody can account for.
    bool undone = memory && GA_OPENCL_ASK(clReleaseMemObject, memory);
    ga_claim_drop(c);
    return undone ? ga_opencl_refused(status, GA_CL_MEM_OBJECT_ALLOCATION_FAILURE) : memory;
}
