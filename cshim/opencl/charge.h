// SPDX-License-Identifier: Apache-2.0
// What an object of the driver's is charged with, and how that comes back.
//
// An object lives as long as anything refers to it: the program, a command in a queue, another
// object (OpenCL 3.0, 5.4.1: clReleaseMemObject). A count of the program's own releases says too
// little, and CL_MEM_REFERENCE_COUNT is stale as soon as it is read. So the driver is asked to say
// when it ends (clSetMemObjectDestructorCallback, in every version from 1.1 on). It does so right
// before it frees what the object had: what ends in a call that the program made comes back when
// that call returns; what ends in a thread of the driver's own, at once.
#ifndef GA_OPENCL_CHARGE_H
#define GA_OPENCL_CHARGE_H

#include "core/charge.h"

// The first member of each kind of charge. Records are used again, and a forked child finds them
// zeroed: its driver's objects are charged to nobody.
struct ga_opencl_charge {
    struct ga_charge held; // bytes
    uint64_t generation;   // of the root that it was made in
    void (*give_back)(struct ga_root *root,
                      struct ga_opencl_charge *charge); // NULL: it is of bytes
    uint64_t of;                                        // address of a block: svm.c
};
_Static_assert(sizeof(struct ga_opencl_charge) <= GA_CHARGE_SIZE,
               "it is one of the core's records");

// Makes an entry with bytes that are on their way a charge, which no table has. NULL: there is no
// memory to remember it by, and the bytes still are on their way.
struct ga_opencl_charge *ga_opencl_charge_hold(struct ga_root *root, const struct ga_entry *entry);
// The reverse.
struct ga_entry ga_opencl_charge_withdraw(struct ga_root *root, struct ga_opencl_charge *charge);

// The same, and its bytes go back.
void ga_opencl_charge_drop(struct ga_root *root, struct ga_opencl_charge *charge);

// The driver says that the object of this charge ends.
void ga_opencl_charge_ends(struct ga_opencl_charge *charge);

// What the calling thread knows of the program's call that it is in.
struct ga_opencl_call {
    bool on;                          // it is in one
    const void *caller;               // where in the program that is
    bool layer;                       // it came by the layer, past the wrappers
    uint32_t coming;                  // the row that a wrapper has called of the loader's, + 1, and
                                      // that has not come to the layer
    struct ga_opencl_charge *leaving; // of objects that have ended since
};
extern __thread struct ga_opencl_call ga_opencl_call __attribute__((tls_model("initial-exec")));

void ga_opencl_charge_give_back(void); // all that is leaving

// Says in which one it was already: it may be a callback of that one's. That goes on.
static inline struct ga_opencl_call ga_opencl_call_begin(const void *caller, bool layer,
                                                         uint32_t coming) {
    struct ga_opencl_call outer = ga_opencl_call;
    ga_opencl_call.on = true;
    ga_opencl_call.caller = caller;
    ga_opencl_call.layer = layer;
    ga_opencl_call.coming = coming;
    return outer;
}
static inline void ga_opencl_call_end(const struct ga_opencl_call *outer) {
    ga_opencl_call.on = outer->on;
    ga_opencl_call.caller = outer->caller;
    ga_opencl_call.layer = outer->layer;
    ga_opencl_call.coming = 0;
    if (GA_UNLIKELY(ga_opencl_call.leaving != NULL) && !outer->on)
        ga_opencl_charge_give_back();
}
static inline bool ga_opencl_call_is_on(void) {
    return ga_opencl_call.on;
}

#endif
