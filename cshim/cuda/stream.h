// SPDX-License-Identifier: Apache-2.0
// Streams: asked for before each is made, given back when it is destroyed.
#ifndef GA_CUDA_STREAM_H
#define GA_CUDA_STREAM_H

#include "core/admit.h"
#include "cuda/driver.h"

// Open, then the driver, then created. False: refused.
bool ga_cuda_stream_open(struct ga_allocation *c);
bool ga_cuda_stream_open_green(struct ga_allocation *c, ga_green green);
ga_result ga_cuda_stream_created(struct ga_allocation *c, ga_result result,
                                 const ga_stream *stream);
// A context has ended, and with it the streams that were marked with this ticket.
void ga_cuda_stream_sweep(struct ga_root *root, uint64_t serial);
ga_result ga_cuda_stream_destroy(GA_FN_cuStreamDestroy_v2 *real, ga_stream stream);
// Counts a capture that is about to begin, and waits until no thread asks a stream.
void ga_cuda_stream_capture(void);

#endif
