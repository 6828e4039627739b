// SPDX-License-Identifier: Apache-2.0
// What the calling thread knows of the program's call that it is in, and what ends in the call.
//
// An object lives as long as anything refers to it: the program, a command in a queue, another
// object (OpenCL 3.0, 5.4.1: clReleaseMemObject). A count of the program's own releases says too
// little, and CL_MEM_REFERENCE_COUNT is stale as soon as it is read. So the driver is asked to say
// when an object ends (clSetMemObjectDestructorCallback, in every version from 1.1 on). It does so
// right before it frees what the object had. What ends in a call of the program's is given back
// when that call returns; what ends in a thread of the driver's own, at once.
#ifndef GA_OPENCL_CALL_H
#define GA_OPENCL_CALL_H

#include "core/root.h"
#include "core/slots.h"

// What a context has taken: the first member of its record (context.c).
struct ga_opencl_taken {
    uint64_t generation; // of the root that the slots were taken in; 0: not in use
    struct ga_slots slots;
    struct ga_opencl_taken *next; // of another context that has ended in the same call
};

struct ga_opencl_call {
    bool on;                          // it is in one
    const void *caller;               // where in the program that is
    bool layer;                       // it came by the layer, past the wrappers
    uint32_t coming;                  // the row that a wrapper has called of the loader's, + 1,
                                      // and that has not come to the layer
    struct ga_entry bytes;            // in flight, of objects that have ended in it; bytes 0: none
    struct ga_opencl_taken *contexts; // that have ended in it, or NULL
};
extern __thread struct ga_opencl_call ga_opencl_call __attribute__((tls_model("initial-exec")));

// Gives back the bytes of what has ended in the call, before it returns or takes others: a thread
// has the bytes of one device in flight.
void ga_opencl_call_give_back(void);
// The driver says that the object of an entry in root.blocks ends, or a context.
void ga_opencl_call_ended(struct ga_key key);
void ga_opencl_call_context_ended(struct ga_opencl_taken *context);

// Says in which call the thread was already: it may be a callback of that one's. That goes on.
static inline struct ga_opencl_call ga_opencl_call_begin(const void *caller, bool layer,
                                                         uint32_t coming) {
    struct ga_opencl_call outer = ga_opencl_call;
    ga_opencl_call.on = true;
    ga_opencl_call.caller = caller;
    ga_opencl_call.layer = layer;
    ga_opencl_call.coming = coming;
    return outer;
}

// Ends the outermost call: gives back all that has ended in it.
void ga_opencl_call_end_all(void);
static inline void ga_opencl_call_end(const struct ga_opencl_call *outer) {
    ga_opencl_call.on = outer->on;
    ga_opencl_call.caller = outer->caller;
    ga_opencl_call.layer = outer->layer;
    ga_opencl_call.coming = 0;
    if (GA_UNLIKELY(ga_opencl_call.bytes.bytes || ga_opencl_call.contexts) && !outer->on)
        ga_opencl_call_end_all();
}
static inline bool ga_opencl_call_is_on(void) {
    return ga_opencl_call.on;
}

#endif
