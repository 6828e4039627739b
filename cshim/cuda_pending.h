// SPDX-License-Identifier: Apache-2.0
// Memory freed in stream order: it stays charged until its stream has executed the
// free, which an event recorded behind it tells.
#ifndef GA_CUDA_PENDING_H
#define GA_CUDA_PENDING_H

#include "driver.h"
#include "root.h"

// A block was freed on a stream, and the driver has accepted that.
void ga_cuda_pending_add(struct ga_root *root, const struct ga_entry *entry, ga_stream stream);
// A stream is about to end; afterwards nothing can be asked of it.
void ga_cuda_pending_stream_gone(struct ga_root *root, ga_stream stream);
// A context is about to end (becomes: a ticket), or did not end after all (the reverse).
void ga_cuda_pending_mark(struct ga_root *root, uint64_t context, uint64_t becomes);
// It has ended: what was pending there has executed.
void ga_cuda_pending_sweep(struct ga_root *root, uint64_t ticket);

#endif
