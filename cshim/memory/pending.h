// SPDX-License-Identifier: Apache-2.0
// Frees in stream order that are not known to be executed: one sum of bytes for each stream and
// pool. A sum is cleared when its stream is seen to have passed all that was freed on it: the
// program synchronises with the stream or its context, the context ends, or, if memory is short,
// the stream is asked.
#ifndef GA_MEMORY_PENDING_H
#define GA_MEMORY_PENDING_H

#include "memory/pool.h"

// The driver has accepted to free a block in stream order. The block was taken out of its table
// before. _add: it is of a pool, in which its bytes are live. _add_plain: it is of no pool, and its
// bytes are in flight.
void ga_memory_pending_add(struct ga_root *root, const struct ga_entry *entry,
                           const struct ga_memory_at *at);
void ga_memory_pending_add_plain(struct ga_root *root, const struct ga_entry *entry,
                                 const struct ga_memory_at *at);
// Adds bytes that are live in a pool to what a stream has freed.
void ga_memory_pending_add_bytes(struct ga_root *root, struct ga_memory_pool *pool, uint64_t bytes,
                                 uint16_t tag, const struct ga_memory_at *at);
// Asks the streams that have frees pending of a device whether they have executed them, and has
// pools give up memory until wanted bytes have come back. Returns how many came.
// (ga_interface.reap)
uint64_t ga_memory_pending_reap(struct ga_root *root, uint32_t device, uint64_t wanted);

// Whether anything was ever freed in stream order, or taken from a pool.
bool ga_memory_pending_any(struct ga_root *root);
// Returns a number for what was freed so far, for ga_memory_pending_synchronized.
uint64_t ga_memory_pending_turn(struct ga_root *root);
// Clears what a stream, or (stream NULL) a context, had freed up to a turn, because the program has
// synchronised with it. at NULL: it has synchronised with something else, so that the streams are
// asked.
void ga_memory_pending_synchronized(struct ga_root *root, const struct ga_memory_at *at,
                                    uint64_t turn);

// Waits until no thread asks a stream. The caller has counted a capture and is about to begin it,
// so that later questions leave captured streams out.
void ga_memory_pending_pause(struct ga_root *root);
// Is called before the driver destroys a stream: no record names its handle afterwards, because the
// driver may give the handle to a new stream at once.
void ga_memory_pending_stream_ends(struct ga_root *root, void *stream);
// Clears what was pending in the context with a serial number. The context has ended, so that all
// of it has executed.
void ga_memory_pending_sweep(struct ga_root *root, uint64_t serial);

#endif
