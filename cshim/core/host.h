// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory of the process, over all interfaces. The limit is enforced here, in the
// process. The daemon only reads the count, which publish.c writes to the lease page.
#ifndef GA_HOST_H
#define GA_HOST_H

#include "core/root.h"

// Counts bytes. False: they exceed the limit; nothing was counted.
bool ga_host_acquire(struct ga_root *root, uint64_t bytes);
// Subtracts bytes from the count.
void ga_host_release(struct ga_root *root, uint64_t bytes);

#endif
