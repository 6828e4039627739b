// SPDX-License-Identifier: Apache-2.0
// Takes a slot for each CUDA stream before the driver makes it, and releases the slot when the
// stream is destroyed. Called by hooks.c and teardown.c.
#ifndef GA_CUDA_STREAM_H
#define GA_CUDA_STREAM_H

#include "core/admit.h"
#include "cuda/driver.h"

// Ask for a stream in the current context, or in a green context. The caller then calls the driver,
// and then ga_cuda_stream_created. False: refused.
bool ga_cuda_stream_open(struct ga_allocation *c);
bool ga_cuda_stream_open_green(struct ga_allocation *c, ga_green green);
ga_result ga_cuda_stream_created(struct ga_allocation *c, ga_result result,
                                 const ga_stream *stream);
// Releases the streams of a context that has ended, given its serial number.
void ga_cuda_stream_sweep(struct ga_root *root, uint64_t serial);
ga_result ga_cuda_stream_destroy(GA_FN_cuStreamDestroy_v2 *real, ga_stream stream);
// Counts a capture that is about to begin, and waits until no thread asks the driver about a
// stream.
void ga_cuda_stream_capture(void);

#endif
