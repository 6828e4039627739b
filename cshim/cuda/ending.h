// SPDX-License-Identifier: Apache-2.0
// The end of a context: what lived in it (blocks, streams, page-locked memory, what was imported,
// mapped or is pending) leaves the tables with it.
#ifndef GA_CUDA_ENDING_H
#define GA_CUDA_ENDING_H

#include "core/root.h"
#include "cuda/driver.h"

// Around a call that may end a context: what lives in it is marked, and then either leaves the
// tables, together with the context, or stays.
uint64_t ga_cuda_ending_mark(struct ga_root *root, uint64_t context);
void ga_cuda_ending_unmark(struct ga_root *root, uint64_t context, uint64_t ticket);
void ga_cuda_ending_gone(struct ga_root *root, uint64_t context, uint64_t ticket);
// The context of this ticket is gone, and the driver freed what lived in it.
void ga_cuda_ending_sweep(struct ga_root *root, uint64_t ticket);

ga_result ga_cuda_ending_destroy(GA_FN_cuCtxDestroy_v2 *real, ga_context context);
ga_result ga_cuda_ending_attach(GA_FN_cuCtxAttach *real, ga_context *context, unsigned int flags);
ga_result ga_cuda_ending_detach(GA_FN_cuCtxDetach *real, ga_context context);

#endif
