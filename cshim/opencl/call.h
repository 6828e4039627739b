// SPDX-License-Identifier: Apache-2.0
// The OpenCL call of the program that the calling thread is in, and the objects that end in it.
//
// An object lives as long as anything refers to it: the program, a command in a queue, another
// object (OpenCL 3.0, 5.4.1: clReleaseMemObject). To count the program's own releases is therefore
// not enough, and CL_MEM_REFERENCE_COUNT is stale as soon as it is read. So the library has the
// driver call a function when an object ends (clSetMemObjectDestructorCallback, in every version
// from 1.1 on). The driver calls it right before it frees the object's memory. If that happens in a
// call of the program, the bytes are given back when the call returns, because the memory is free
// then. In a thread of the driver they are given back at once, because nothing tells when it
// returns.
#ifndef GA_OPENCL_CALL_H
#define GA_OPENCL_CALL_H

#include "core/root.h"
#include "core/slots.h"

// The slots that a context has taken. It is the first member of the context's record (context.c).
struct ga_opencl_taken {
    uint64_t generation; // of the root (it differs in a forked child); 0: the slots are given back
    struct ga_slots slots;
    struct ga_opencl_taken *next; // another context that has ended in the same call, or NULL
};

// The state of the calling thread.
struct ga_opencl_call {
    bool on;            // the thread is in an OpenCL call of the program
    const void *caller; // return address of that call, in the program
    bool layer;         // the call came through the OpenCL layer, not through a wrapper
    // 1 + number of the row whose loader function a wrapper has called, and whose call the layer
    // has not seen yet; 0: none.
    uint32_t coming;
    // One entry for all objects that have ended in the call. Its bytes are in flight; 0: none.
    struct ga_entry bytes;
    struct ga_opencl_taken *contexts; // contexts that have ended in the call, or NULL
};
extern __thread struct ga_opencl_call ga_opencl_call __attribute__((tls_model("initial-exec")));

// Gives back the bytes of objects that have ended in the call. It must be called before the call
// returns, and before the thread takes bytes, because a thread can have the bytes of only one
// device in flight.
void ga_opencl_call_give_back(void);
// Takes the entry of an object out of root.blocks, because the driver says that the object ends.
void ga_opencl_call_ended(struct ga_key key);
// Notes that the driver says that a context ends.
void ga_opencl_call_context_ended(struct ga_opencl_taken *context);

// Begins a call. Returns the state of the call that the thread was in, for ga_opencl_call_end: the
// program may call from a callback that another call makes.
static inline struct ga_opencl_call ga_opencl_call_begin(const void *caller, bool layer,
                                                         uint32_t coming) {
    struct ga_opencl_call outer = ga_opencl_call;
    ga_opencl_call.on = true;
    ga_opencl_call.caller = caller;
    ga_opencl_call.layer = layer;
    ga_opencl_call.coming = coming;
    return outer;
}

// Gives back the bytes and the slots of everything that has ended in the outermost call.
void ga_opencl_call_end_all(void);
// Ends a call, and goes on with the outer one. If there is no outer one, gives everything back.
static inline void ga_opencl_call_end(const struct ga_opencl_call *outer) {
    ga_opencl_call.on = outer->on;
    ga_opencl_call.caller = outer->caller;
    ga_opencl_call.layer = outer->layer;
    ga_opencl_call.coming = 0;
    if (GA_UNLIKELY(ga_opencl_call.bytes.bytes || ga_opencl_call.contexts) && !outer->on)
        ga_opencl_call_end_all();
}
// Reports whether the calling thread is in an OpenCL call of the program.
static inline bool ga_opencl_call_is_on(void) {
    return ga_opencl_call.on;
}

#endif
