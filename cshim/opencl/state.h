// SPDX-License-Identifier: Apache-2.0
// What OpenCL's side knows in a process. It lies behind the root, in the pages that a forked child
// finds zeroed.
#ifndef GA_OPENCL_STATE_H
#define GA_OPENCL_STATE_H

#include "core/records.h"
#include "core/root.h"
#include "core/table.h"

// OpenCL's spaces of keys (core/table.h).
enum {
    GA_SPACE_OPENCL = 10,         // memory object, by its handle
    GA_SPACE_OPENCL_SVM = 11,     // shared virtual memory, by its address
    GA_SPACE_OPENCL_COMMAND = 12, // the same, freed by a command that has not executed: svm.c
    GA_SPACES_OPENCL_END,
};

struct ga_opencl_context;

// The number of a device (device.c).
struct ga_opencl_known {
    _Atomic(void *) device; // the driver's; written last; NULL: none
    int number;
};
#define GA_OPENCL_KNOWN 8

struct ga_opencl_state {
    struct ga_records contexts; // struct ga_opencl_context
    _Atomic uint64_t freed;     // blocks that commands have freed so far: svm.c
    struct ga_spin lock;        // guards what follows
    struct ga_opencl_context *counted;
    // Read without it; what is there stays for as long as the process lives.
    struct ga_opencl_known numbers[GA_OPENCL_KNOWN];
};

#define GA_OPENCL_STATE ((size_t)128 << 10) // its place: ga_root_state
static inline struct ga_opencl_state *ga_opencl(struct ga_root *root) {
    return ga_root_state(root, GA_OPENCL_STATE);
}

#endif
