// SPDX-License-Identifier: Apache-2.0
// How much page-locked host memory the process holds, whatever API made it so. The cap is
// kept here, in the process; the daemon reads the count in the lease page.
#ifndef GA_HOST_H
#define GA_HOST_H

#include "core/root.h"

// Takes bytes under the cap. False: they do not fit, nothing was taken.
bool ga_host_acquire(struct ga_root *root, uint64_t bytes);
void ga_host_release(struct ga_root *root, uint64_t bytes);

#endif
