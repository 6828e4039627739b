// SPDX-License-Identifier: Apache-2.0
// Frees in stream order that are not known to be executed: one sum of bytes for each stream and
// pool. A sum is cleared when its stream is seen to have passed all that was freed on it: the
// program synchronises with the stream or its context, the context ends, or, if memory is short,
// the stream is asked. Beside the sums are calls to be made when a stream has passed a point.
#ifndef GA_CUDA_PENDING_H
#define GA_CUDA_PENDING_H

#include "cuda/pool.h"

// Describes a stream before the driver is asked.
struct ga_cuda_at ga_cuda_pending_at(struct ga_root *root, ga_stream stream);

// The driver has accepted the free of a block that was taken out of its table: of a pool, or of no
// pool, whose bytes are in flight.
void ga_cuda_pending_add(struct ga_root *root, const struct ga_entry *entry,
                         const struct ga_cuda_at *at);
void ga_cuda_pending_add_plain(struct ga_root *root, const struct ga_entry *entry,
                               const struct ga_cuda_at *at);
// Adds bytes that are live in a pool to what a stream has freed.
void ga_cuda_pending_add_bytes(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                               uint16_t tag, const struct ga_cuda_at *at);
// ga_interface.reap.
uint64_t ga_cuda_pending_reap(struct ga_root *root, uint32_t device, uint64_t wanted);

// The program's synchronisations.
ga_result ga_cuda_sync_stream(GA_FN_cuStreamSynchronize *real, ga_stream effective,
                              ga_stream stream);
ga_result ga_cuda_sync_event(GA_FN_cuEventSynchronize *real, ga_event event);
ga_result ga_cuda_sync_context(GA_FN_cuCtxSynchronize *real);
ga_result ga_cuda_sync_context_v2(GA_FN_cuCtxSynchronize_v2 *real, ga_context context);

// A capture is about to begin, after it was counted: waits until no stream is being asked.
void ga_cuda_pending_pause(struct ga_root *root);
// A stream is about to end: its handle may come again.
void ga_cuda_pending_stream_ends(struct ga_root *root, ga_stream stream);
// The context with a serial number has ended: what was pending there has executed.
void ga_cuda_pending_sweep(struct ga_root *root, uint64_t serial);

#endif
