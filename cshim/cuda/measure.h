// SPDX-License-Identifier: Apache-2.0
// What a call takes that does not say how much: two readings of the device around it.
//
// The readings are the daemon's: the device's own figure for this process. What is free on the
// device, which the driver would tell at once, moves with what everybody else does; and a process
// in a namespace of its own does not find itself in NVML's lists.
//
// What other threads hold and free meanwhile is reckoned in the program's favour. One such call on
// a device is made at a time, since nothing tells what two took of it; one that waited too long for
// its turn, or comes from a handler that interrupted another, is not measured, nor is one during
// which a context was made or memory imported. What is missed so the daemon's own readings find.
#ifndef GA_CUDA_MEASURE_H
#define GA_CUDA_MEASURE_H

#include "core/root.h"

struct ga_cuda_measure {
    bool mine; // the turn
    bool known;
    uint32_t device;
    uint32_t contexts;
    uint32_t imports;
    int64_t base; // what the process used beyond its bytes, or more
};

// Before the call; ga_cuda_measure_done must follow.
void ga_cuda_measure_begin(struct ga_root *root, uint32_t device, struct ga_cuda_measure *m);
// After it: the bytes that it took; 0 where that is not known.
uint64_t ga_cuda_measure_taken(struct ga_root *root, struct ga_cuda_measure *m);
// What it took is charged, or undone: the next one may begin.
void ga_cuda_measure_done(struct ga_root *root, const struct ga_cuda_measure *m);

#endif
