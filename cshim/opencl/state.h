// SPDX-License-Identifier: Apache-2.0
// The state of cshim/opencl in a process. It lies behind the root (core/root.h), in pages that
// fork() zeroes in the child.
#ifndef GA_OPENCL_STATE_H
#define GA_OPENCL_STATE_H

#include "core/records.h"
#include "core/root.h"
#include "core/table.h"

// Key spaces of OpenCL (core/table.h).
enum {
    GA_SPACE_OPENCL = 10,     // memory object, by its handle
    GA_SPACE_OPENCL_SVM = 11, // shared virtual memory, by its address
    GA_SPACE_OPENCL_COMMAND =
        12, // shared virtual memory that a command will free, by number: svm.c
    GA_SPACES_OPENCL_END,
};

struct ga_opencl_context;

// A device whose number is known. device.c uses it.
struct ga_opencl_device_record {
    _Atomic(void *) device; // handle, written after number; NULL: the record is not in use
    int number;
};
#define GA_OPENCL_DEVICE_RECORDS 8

struct ga_opencl_state {
    struct ga_records contexts; // struct ga_opencl_context
    _Atomic uint64_t freed;     // number of blocks that commands were asked to free so far: svm.c
    struct ga_spin lock;        // guards the two fields that follow
    struct ga_opencl_context
        *counted; // list of contexts whose end the driver does not report: context.c
    // Written with the lock held, read without it. A record that is in use never changes.
    struct ga_opencl_device_record numbers[GA_OPENCL_DEVICE_RECORDS];
};

#define GA_OPENCL_STATE ((size_t)128 << 10) // offset of this state behind the root (ga_root_state)
static inline struct ga_opencl_state *ga_opencl(struct ga_root *root) {
    return ga_root_state(root, GA_OPENCL_STATE);
}

#endif
