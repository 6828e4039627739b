// SPDX-License-Identifier: Apache-2.0
// The calls that end a context, and the sweep of what lived in it: blocks, streams, page-locked
// memory, what was imported or mapped, and what is pending.
#ifndef GA_CUDA_TEARDOWN_H
#define GA_CUDA_TEARDOWN_H

#include "core/root.h"
#include "cuda/driver.h"

// Locks ga_memory_state.asking around a call that may end a context, so that no other thread asks
// the driver about streams and pools in that context meanwhile. Returns whether it is locked. It is
// not if another thread has held it for five seconds, or if this thread has it already, because the
// driver calls this function again while it ends another context.
bool ga_cuda_teardown_begin(struct ga_root *root);
// Unlocks it if begun, after the call. The caller has called ga_cuda_context_end if a context
// ended.
void ga_cuda_teardown_finish(struct ga_root *root, bool begun);

// Takes all entries with a context's serial number out of all tables but that of contexts. It is
// the ga_cuda_context_sweep of context.h.
void ga_cuda_teardown_sweep(struct ga_root *root, uint64_t serial);

ga_result ga_cuda_teardown_destroy(GA_FN_cuCtxDestroy_v2 *real, ga_context context);
ga_result ga_cuda_teardown_attach(GA_FN_cuCtxAttach *real, ga_context *context, unsigned int flags);
ga_result ga_cuda_teardown_detach(GA_FN_cuCtxDetach *real, ga_context context);

#endif
