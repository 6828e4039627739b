// SPDX-License-Identifier: Apache-2.0
// A program that idles with bytes pending, or with pools that keep some, gives nothing back by
// itself. While others wait for them (NOTIFY in the credit word), a thread of the library's own
// does: from the first free in stream order on, with all signals blocked, and only as long as
// there is something to give back.
#ifndef GA_CUDA_IDLE_H
#define GA_CUDA_IDLE_H

#include "core/root.h"

// There is something pending; starts the thread, or wakes it.
void ga_cuda_idle_wake(struct ga_root *root);

#endif
