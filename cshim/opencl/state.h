// SPDX-License-Identifier: Apache-2.0
// What OpenCL's side knows in a process. It lies behind the root, in the pages that a forked child
// finds zeroed.
#ifndef GA_OPENCL_STATE_H
#define GA_OPENCL_STATE_H

#include "core/records.h"
#include "core/root.h"
#include "core/table.h"

// The keys of root.blocks are addresses of CUDA's; OpenCL's are marked.
#define GA_OPENCL_KEY (1ull << 61)

struct ga_opencl_context;

// A device whose number is known for as long as the process lives (device.c).
struct ga_opencl_known {
    _Atomic(void *) device; // written last; NULL: none, nor behind it
    int number;
};
#define GA_OPENCL_KNOWN 8

// A context for one device, for as long as it lives: its driver says when it ends (context.c).
struct ga_opencl_single {
    _Atomic(void *) context; // written last, and NULL first; NULL: none, but there may be behind it
    void *device;
};
#define GA_OPENCL_SINGLES 8

struct ga_opencl_state {
    struct ga_records contexts; // struct ga_opencl_context
    struct ga_spin lock;        // guards what follows, and the parts of charges
    struct ga_opencl_context *counted;
    struct ga_opencl_known known[GA_OPENCL_KNOWN];      // read without it
    struct ga_opencl_single singles[GA_OPENCL_SINGLES]; // the same
    struct ga_table used;                               // use.c
};

#define GA_OPENCL_STATE ((size_t)128 << 10) // its place: ga_root_state
static inline struct ga_opencl_state *ga_opencl(struct ga_root *root) {
    return ga_root_state(root, GA_OPENCL_STATE);
}

#endif
