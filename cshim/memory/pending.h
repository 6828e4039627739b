// SPDX-License-Identifier: Apache-2.0
// Frees in stream order that are not known to have executed. A free on a stream executes after the
// work before it, and until then the driver cannot use the memory again; so the bytes stay charged,
// as pending. There is one sum of pending bytes for each stream and pool (ga_memory_frees). A sum
// is cleared when the stream has executed all its frees: the program synchronises with the stream
// or its context, the context ends, or, if memory is short, the driver is asked about the stream.
#ifndef GA_MEMORY_PENDING_H
#define GA_MEMORY_PENDING_H

#include "memory/pool.h"

// Makes the bytes of a block pending, because the driver has accepted to free it in stream order.
// The entry of the block was taken out of its table before. ga_memory_pending_add: the block is a
// pool's, and its bytes are live. ga_memory_pending_add_plain: it is of no pool, and its bytes are
// in flight.
void ga_memory_pending_add(struct ga_root *root, const struct ga_entry *entry,
                           const struct ga_memory_at *at);
void ga_memory_pending_add_plain(struct ga_root *root, const struct ga_entry *entry,
                                 const struct ga_memory_at *at);
// Makes live bytes of a pool pending on a stream. tag: the session that the bytes are charged in.
void ga_memory_pending_add_bytes(struct ga_root *root, struct ga_memory_pool *pool, uint64_t bytes,
                                 uint16_t tag, const struct ga_memory_at *at);
// Asks the streams that have pending frees of a device whether they have executed them, and trims
// pools until wanted bytes were given back. Returns how many were. It is ga_interface.reap of the
// interfaces that use memory/: the core calls it when memory is short.
uint64_t ga_memory_pending_reap(struct ga_root *root, uint32_t device, uint64_t wanted);

// Reports whether anything was ever freed in stream order, or allocated from a pool.
bool ga_memory_pending_any(struct ga_root *root);
// Returns the number of frees so far. A wrapper reads it before it has the driver synchronise,
// because other threads may free meanwhile, and passes it to ga_memory_pending_synchronized.
uint64_t ga_memory_pending_turn(struct ga_root *root);
// Clears what a stream had freed up to a turn, because the program has synchronised with the
// stream; at->stream NULL: with the context. at NULL: the program has synchronised with something
// whose stream is not known, so that all streams with pending frees are asked. Then reads the pools
// that keep bytes, and gives back what they no longer have.
void ga_memory_pending_synchronized(struct ga_root *root, const struct ga_memory_at *at,
                                    uint64_t turn);

// Waits until no thread asks the driver about a stream. The caller is about to begin a capture, and
// has counted it already, so that later questions leave captured streams out.
void ga_memory_pending_pause(struct ga_root *root);
// Must be called before the driver destroys a stream: afterwards no record with pending frees names
// its handle, because the driver may give the handle to a new stream at once. Frees that have not
// executed stay pending: the driver calls a function when they have.
void ga_memory_pending_detach_stream(struct ga_root *root, void *stream);
// Clears what was pending in the context with a serial number, because the context has ended, and
// all its frees have executed.
void ga_memory_pending_sweep(struct ga_root *root, uint64_t serial);

#endif
