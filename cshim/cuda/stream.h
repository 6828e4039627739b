// SPDX-License-Identifier: Apache-2.0
// Streams: asked for before each is made, given back when it is destroyed.
#ifndef GA_CUDA_STREAM_H
#define GA_CUDA_STREAM_H

#include "core/root.h"
#include "cuda/driver.h"

ga_result ga_cuda_stream_create(GA_FN_cuStreamCreate *real, ga_stream *stream, unsigned int flags);
ga_result ga_cuda_stream_create_priority(GA_FN_cuStreamCreateWithPriority *real, ga_stream *stream,
                                         unsigned int flags, int priority);
// A context has ended, and with it the streams that were marked with this ticket.
void ga_cuda_stream_sweep(struct ga_root *root, uint64_t ticket);
ga_result ga_cuda_stream_create_green(GA_FN_cuGreenCtxStreamCreate *real, ga_stream *stream,
                                      ga_green green, unsigned int flags, int priority);
ga_result ga_cuda_stream_destroy(GA_FN_cuStreamDestroy_v2 *real, ga_stream stream);
// A capture is about to begin: it is counted, and what was freed gets the events that it lacks.
void ga_cuda_stream_capture(void);

#endif
