// SPDX-License-Identifier: Apache-2.0
// Frees in stream order that are not known to be executed: one sum of bytes for each stream and
// pool. A sum is cleared when its stream is seen to have passed all that was freed on it: the
// program synchronises with the stream or its context, the context ends, or, if memory is short,
// the stream is asked.
#ifndef GA_CUDA_PENDING_H
#define GA_CUDA_PENDING_H

#include "cuda/pool.h"

// Describes a stream before the driver is asked.
struct ga_cuda_at ga_cuda_pending_at(struct ga_root *root, ga_stream stream);

// The driver has accepted to free a block in stream order. The block was taken out of its table
// before. _add: it is of a pool, in which its bytes are live. _add_plain: it is of no pool, and its
// bytes are in flight.
void ga_cuda_pending_add(struct ga_root *root, const struct ga_entry *entry,
                         const struct ga_cuda_at *at);
void ga_cuda_pending_add_plain(struct ga_root *root, const struct ga_entry *entry,
                               const struct ga_cuda_at *at);
// Adds bytes that are live in a pool to what a stream has freed.
void ga_cuda_pending_add_bytes(struct ga_root *root, struct ga_cuda_pool *pool, uint64_t bytes,
                               uint16_t tag, const struct ga_cuda_at *at);
// Asks the streams that have frees pending of a device whether they have executed them, and has
// pools give up memory until wanted bytes have come back. Returns how many came.
// (ga_interface.reap)
uint64_t ga_cuda_pending_reap(struct ga_root *root, uint32_t device, uint64_t wanted);

// Call the driver's synchronisation, and clear what has executed by it. effective is the stream
// that is meant, where stream is what the program passed.
ga_result ga_cuda_sync_stream(GA_FN_cuStreamSynchronize *real, ga_stream effective,
                              ga_stream stream);
ga_result ga_cuda_sync_event(GA_FN_cuEventSynchronize *real, ga_event event);
ga_result ga_cuda_sync_context(GA_FN_cuCtxSynchronize *real);
ga_result ga_cuda_sync_context_v2(GA_FN_cuCtxSynchronize_v2 *real, ga_context context);

// Waits until no thread asks a stream. The caller has counted a capture and is about to begin it,
// so that later questions leave captured streams out.
void ga_cuda_pending_pause(struct ga_root *root);
// Is called before the driver destroys a stream: no record names its handle afterwards, because the
// driver may give the handle to a new stream at once.
void ga_cuda_pending_stream_ends(struct ga_root *root, ga_stream stream);
// Clears what was pending in the context with a serial number. The context has ended, so that all
// of it has executed.
void ga_cuda_pending_sweep(struct ga_root *root, uint64_t serial);

#endif
