// SPDX-License-Identifier: Apache-2.0
// The OpenCL call of the program that the calling thread is in, and the objects that end in that
// call. Used by the other files of cshim/opencl.
//
// An object lives as long as anything refers to it: the program, a command in a queue, another
// object (OpenCL 3.0, 5.4.1: clReleaseMemObject). So it is not enough to count the program's own
// releases; and CL_MEM_REFERENCE_COUNT may change right after it is read. Therefore the library
// registers a function that the driver calls when an object ends (clSetMemObjectDestructorCallback,
// in every version from 1.1 on).
//
// The driver calls that function right before it frees the object's memory. If that happens in a
// call of the program, the bytes are released when the call returns, because the memory is free
// then. In a thread of the driver the bytes are released at once, because the library does not see
// when the thread has freed the memory.
#ifndef GA_OPENCL_CALL_H
#define GA_OPENCL_CALL_H

#include "core/root.h"
#include "core/slots.h"

// The slots of a context: the first member of the context's record (context.c).
struct ga_opencl_context_slots {
    uint64_t generation; // root's generation when they were taken (it differs in a forked child);
                         // 0: the slots are released
    struct ga_slots slots;
    struct ga_opencl_context_slots *next; // next context that has ended in the same call, or NULL
};

// The state of the calling thread.
struct ga_opencl_call {
    bool active;        // the thread is in an OpenCL call of the program
    const void *caller; // return address of that call, in the program
    bool layer;         // the call came through the OpenCL layer, not through a wrapper
    // 1 + number of the row whose loader function a wrapper has called, and whose call has not
    // reached the layer yet; 0: none.
    uint32_t forwarded_row;
    // Sum of all objects that have ended in the call, in one entry. Its bytes are in flight; 0:
    // none.
    struct ga_entry bytes;
    struct ga_opencl_context_slots *contexts; // contexts that have ended in the call, or NULL
};
extern __thread struct ga_opencl_call ga_opencl_call __attribute__((tls_model("initial-exec")));

// Releases the bytes of objects that have ended in the call. It must be called before the call
// returns. It must also be called before the thread reserves bytes, because a thread can have bytes
// of only one device in flight.
void ga_opencl_call_release_bytes(void);
// Removes the entry of an object from ga_root.blocks, because the driver reports that the object
// ends.
void ga_opencl_call_ended(struct ga_key key);
// Notes that a context ends, as the driver reports.
void ga_opencl_call_context_ended(struct ga_opencl_context_slots *context);

// Begins a call. Returns the state of the outer call for ga_opencl_call_end, because the program
// may call OpenCL in a callback of another call.
static inline struct ga_opencl_call ga_opencl_call_begin(const void *caller, bool layer,
                                                         uint32_t forwarded_row) {
    struct ga_opencl_call outer = ga_opencl_call;
    ga_opencl_call.active = true;
    ga_opencl_call.caller = caller;
    ga_opencl_call.layer = layer;
    ga_opencl_call.forwarded_row = forwarded_row;
    return outer;
}

// Releases the bytes and the slots of everything that has ended in the outermost call.
void ga_opencl_call_end_all(void);
// Ends a call, and restores the outer call. If there is no outer call, releases all bytes and
// slots.
static inline void ga_opencl_call_end(const struct ga_opencl_call *outer) {
    ga_opencl_call.active = outer->active;
    ga_opencl_call.caller = outer->caller;
    ga_opencl_call.layer = outer->layer;
    ga_opencl_call.forwarded_row = 0;
    if (GA_UNLIKELY(ga_opencl_call.bytes.bytes || ga_opencl_call.contexts) && !outer->active)
        ga_opencl_call_end_all();
}
// Reports whether the calling thread is in an OpenCL call of the program.
static inline bool ga_opencl_call_is_active(void) {
    return ga_opencl_call.active;
}

#endif
