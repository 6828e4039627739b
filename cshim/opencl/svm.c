// SPDX-License-Identifier: Apache-2.0
// The wrappers for shared virtual memory (svm.h).
#include "opencl/svm.h"

#include "core/admit.h"
#include "opencl/call.h"
#include "opencl/memory.h"
#include "opencl/state.h"

static struct ga_key key_of(const void *address) {
    return (struct ga_key){(uint64_t)(uintptr_t)address, GA_SPACE_OPENCL_SVM};
}

ga_cl_address ga_opencl_svm_alloc(GA_FN_clSVMAlloc *real, ga_cl_context context, ga_cl_bits flags,
                                  size_t size, ga_cl_uint alignment) {
    struct ga_allocation c = {.full = 0};
    ga_cl_address address;
    do {
        if (!ga_opencl_memory_ask(&c, context, 0, size, GA_MEMORY_PLAIN))
            return NULL;
        address = real(context, flags, size, alignment);
        if (!c.root)
            return address;
        c.entry.key = (uint64_t)(uintptr_t)address;
        c.entry.space = GA_SPACE_OPENCL_SVM;
        if (address && ga_insert(c.root, &c.entry))
            return address;
        // Without memory for its entry the block is freed again, because it could not be charged.
        if (address && GA_OPENCL_REAL(clSVMFree))
            GA_OPENCL_REAL(clSVMFree)(context, address);
        ga_allocation_release(&c);
    } while (ga_admit_again(c.root, &c.full, !address));
    return NULL;
}

// Removes the entry before the driver is called, because the driver may give the address to another
// thread at once. clSVMFree returns no error.
void ga_opencl_svm_free(GA_FN_clSVMFree *real, ga_cl_context context, ga_cl_address address) {
    struct ga_allocation c = {.root = ga_root_get()};
    bool ours = c.root && context && address && ga_remove_key(c.root, key_of(address), &c.entry);
    real(context, address);
    if (ours)
        ga_allocation_release(&c);
}

// The blocks that one command frees. They stay charged until the driver reports that the command
// has executed. The driver may hand out their addresses again before that report. Therefore each
// block's entry gets a number as its key, which no other block ever has.
struct command {
    uint64_t first; // number of the first block; the others have the numbers after it
    uint64_t count; // number of blocks
};
// A command is passed through the driver as a pointer-sized word: count in the low COUNT_BITS bits,
// first in the bits above.
#define COUNT_BITS 20

// Returns the key of block i of a command.
static struct ga_key key_in(const struct command *c, uint64_t i) {
    return (struct ga_key){c->first + i, GA_SPACE_OPENCL_COMMAND};
}

// Moves an entry to another key. If there is no memory for that, releases its bytes, or charges
// them for good if the program still has the block (in_use).
static void move(struct ga_root *root, struct ga_key from, struct ga_key to, bool in_use) {
    struct ga_entry entry;
    if (!ga_remove_key(root, from, &entry))
        return;
    entry.key = to.number;
    entry.space = to.space;
    if (ga_insert(root, &entry))
        return;
    if (in_use)
        ga_charge_for_good(root, &entry);
    else
        ga_release_entry(root, &entry);
}

// Moves the entries of the blocks from their addresses to numbers.
static struct command detach(struct ga_root *root, ga_cl_uint count,
                             const ga_cl_address *addresses) {
    struct command c = {atomic_fetch_add(&ga_opencl(root)->freed, count) + 1, count};
    for (ga_cl_uint i = 0; i < count; i++)
        if (addresses[i])
            move(root, key_of(addresses[i]), key_in(&c, i), false);
    return c;
}

// Moves the entries back to their addresses, because the driver refused the command.
static void attach(struct ga_root *root, const struct command *c, const ga_cl_address *addresses) {
    for (uint64_t i = 0; i < c->count; i++)
        move(root, key_in(c, i), key_of(addresses[i]), true);
}

// Releases the bytes of the blocks of a command.
static void end(const struct command *c) {
    for (uint64_t i = 0; i < c->count; i++)
        ga_opencl_call_ended(key_in(c, i));
}

// Is called by the driver when a command has executed. In a forked child it finds no blocks,
// because the child's table is empty.
static void done(ga_cl_event event, ga_cl_int status, void *arg) {
    uint64_t packed = (uint64_t)(uintptr_t)arg;
    struct command c = {packed >> COUNT_BITS, packed & ((1u << COUNT_BITS) - 1)};
    (void)event;
    (void)status;
    end(&c);
}

// Registers the function done with the driver. False: the driver cannot call it, or the command
// frees more blocks than fit into COUNT_BITS.
static bool watch(ga_cl_event event, const struct command *c) {
    void *packed = (void *)(uintptr_t)(c->first << COUNT_BITS | c->count);
    return c->count >> COUNT_BITS == 0 &&
           GA_OPENCL_ASK(clSetEventCallback, event, GA_CL_COMPLETE, done, packed);
}

// Wraps clEnqueueSVMFree. If the program passes a function, the driver calls it instead of freeing
// the blocks. That function frees them by clSVMFree (OpenCL 3.0, 5.6.1), whose wrapper releases
// their bytes. If the driver cannot report when the command has executed, the bytes are released at
// once.
ga_cl_int ga_opencl_svm_enqueue_free(GA_FN_clEnqueueSVMFree *real, ga_cl_queue queue,
                                     ga_cl_uint count, ga_cl_address *addresses, ga_cl_free *free,
                                     void *arg, ga_cl_uint waits, const ga_cl_event *wait_for,
                                     ga_cl_event *event) {
    ga_cl_event own = NULL;
    struct ga_root *root = free || !addresses ? NULL : ga_root_get();
    if (!root)
        return real(queue, count, addresses, free, arg, waits, wait_for, event);
    struct command c = detach(root, count, addresses);
    ga_cl_event *at = event ? event : &own;
    ga_cl_int result = real(queue, count, addresses, free, arg, waits, wait_for, at);
    if (result != GA_CL_SUCCESS)
        attach(root, &c, addresses);
    else if (!watch(*at, &c))
        end(&c);
    if (own && GA_OPENCL_REAL(clReleaseEvent))
        GA_OPENCL_REAL(clReleaseEvent)(own);
    return result;
}
