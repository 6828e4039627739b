// SPDX-License-Identifier: Apache-2.0
// Inserts memory objects into ga_root.blocks, and removes them when they end (memory.h).
#include "opencl/memory.h"

#include "core/admit.h"
#include "opencl/call.h"
#include "opencl/device.h"
#include "opencl/state.h"

bool ga_opencl_memory_ask(struct ga_allocation *c, ga_cl_context context, ga_cl_bits flags,
                          uint64_t bytes, uint32_t kind) {
    c->root = NULL;
    c->entry = (struct ga_entry){.bytes = bytes, .kind = (uint8_t)kind};
    if (bytes == 0)
        return true;
    ga_opencl_call_release_bytes();
    if (!ga_allocation_begin(c))
        return false;
    ga_cl_device first = NULL;
    int device = c->root ? ga_opencl_device_first(c->root, context, &first) : -1;
    // With CL_MEM_USE_HOST_PTR a device that computes on the CPU uses the program's own memory.
    if (device >= 0 && flags & GA_CL_MEM_USE_HOST_PTR && ga_opencl_device_is_cpu(first))
        device = -1;
    if (!ga_allocation_acquire(c, device))
        return false;
    if (c->root)
        ga_publish_soft(c->root); // the driver may allocate it at its first use, on another device
    return true;
}

static struct ga_key key_of(ga_cl_mem memory) {
    return (struct ga_key){(uint64_t)(uintptr_t)memory, GA_SPACE_OPENCL};
}

// Is called by the driver when a memory object ends.
static void ended(ga_cl_mem memory, void *unused) {
    (void)unused;
    ga_opencl_call_ended(key_of(memory));
}

// Inserts a memory object, and registers the function ended with the driver. False: there is no
// memory for the entry, or the driver cannot report the end.
static bool keep(struct ga_allocation *c, ga_cl_mem memory) {
    c->entry.key = key_of(memory).number;
    c->entry.space = GA_SPACE_OPENCL;
    if (!ga_insert(c->root, &c->entry))
        return false;
    if (GA_OPENCL_ASK(clSetMemObjectDestructorCallback, memory, ended, NULL))
        return true;
    ga_remove_key(c->root, key_of(memory), &c->entry);
    return false;
}

ga_cl_mem ga_opencl_memory_made(struct ga_allocation *c, ga_cl_mem memory, ga_cl_int *status) {
    if (!c->root || (memory && keep(c, memory)))
        return memory;
    // Without an entry the object is released again, because its bytes would never be released. If
    // the driver refuses the release, the program has the object, and it stays charged.
    bool undone = memory && GA_OPENCL_ASK(clReleaseMemObject, memory);
    if (memory && !undone)
        ga_charge_for_good(c->root, &c->entry);
    else
        ga_allocation_release(c);
    return undone ? ga_opencl_refused(status, GA_CL_MEM_OBJECT_ALLOCATION_FAILURE) : memory;
}
