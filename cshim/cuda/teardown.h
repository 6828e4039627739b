// SPDX-License-Identifier: Apache-2.0
// The calls that end a context, and the sweep of what lived in it: blocks, streams, page-locked
// memory, imported and mapped memory, and pending frees. Called by hooks.c, primary.c and green.c.
#ifndef GA_CUDA_TEARDOWN_H
#define GA_CUDA_TEARDOWN_H

#include "core/root.h"
#include "cuda/driver.h"

// Locks ga_memory_state.asking before a call that may end a context, so that no other thread asks
// the driver about streams and pools of that context. Returns whether it is locked. It is not
// locked if another thread has held it for five seconds, or if this thread has it already. The
// latter happens if the driver calls this function again while it ends another context.
bool ga_cuda_teardown_begin(struct ga_root *root);
// Unlocks ga_memory_state.asking after the call, if begun. If a context ended, the caller has
// called ga_cuda_context_end.
void ga_cuda_teardown_finish(struct ga_root *root, bool begun);

// Removes all entries with a context's serial number from all tables except the table of contexts.
// It is the ga_cuda_context_sweep of context.h.
void ga_cuda_teardown_sweep(struct ga_root *root, uint64_t serial);

ga_result ga_cuda_teardown_destroy(GA_FN_cuCtxDestroy_v2 *real, ga_context context);
ga_result ga_cuda_teardown_attach(GA_FN_cuCtxAttach *real, ga_context *context, unsigned int flags);
ga_result ga_cuda_teardown_detach(GA_FN_cuCtxDetach *real, ga_context context);

#endif
