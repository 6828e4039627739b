// SPDX-License-Identifier: Apache-2.0
// Stream-ordered frees that are not known to have executed. A free on a stream executes after the
// work before it. Until then the driver cannot reuse the memory, so the bytes stay charged, as
// pending. Each stream and pool has one sum of pending bytes (ga_memory_frees). A sum is cleared
// when the stream has executed all its frees. The library learns that when the program synchronises
// with the stream or its context, or when the context ends. If memory is short, it asks the driver
// about the stream.
#ifndef GA_MEMORY_PENDING_H
#define GA_MEMORY_PENDING_H

#include "memory/pool.h"

// Makes the bytes of a block pending, because the driver has accepted a stream-ordered free. The
// caller has removed the block's entry before. ga_memory_pending_add: the block is a pool's, and
// its bytes are live. ga_memory_pending_add_plain: it belongs to no pool, and its bytes are in
// flight.
void ga_memory_pending_add(struct ga_root *root, const struct ga_entry *entry,
                           const struct ga_memory_at *at);
void ga_memory_pending_add_plain(struct ga_root *root, const struct ga_entry *entry,
                                 const struct ga_memory_at *at);
// Makes live bytes of a pool pending on a stream. tag: the session that the bytes are charged in.
void ga_memory_pending_add_bytes(struct ga_root *root, struct ga_memory_pool *pool, uint64_t bytes,
                                 uint16_t tag, const struct ga_memory_at *at);
// Asks the driver whether streams have executed their pending frees of a device, and trims pools
// until wanted bytes have come back. Returns the number of bytes that came back. It is
// ga_interface.reap of the interfaces that use memory/: the core calls it when memory is short.
uint64_t ga_memory_pending_reap(struct ga_root *root, uint32_t device, uint64_t wanted);

// Reports whether anything was ever freed in stream order, or allocated from a pool.
bool ga_memory_pending_any(struct ga_root *root);
// Returns the number of frees so far. A wrapper reads it before the driver synchronises, because
// other threads may free meanwhile, and passes it to ga_memory_pending_synchronized.
uint64_t ga_memory_pending_turn(struct ga_root *root);
// Clears what a stream had freed up to a turn, because the program has synchronised with the
// stream. at->stream NULL: with the context. at NULL: with something whose stream is not known, so
// all streams with pending frees are asked. Then reads the pools with unused bytes, and releases
// what they no longer have.
void ga_memory_pending_synchronized(struct ga_root *root, const struct ga_memory_at *at,
                                    uint64_t turn);

// Waits until no thread asks the driver about a stream. The caller is about to begin a capture, and
// has counted it already, so that later questions leave captured streams out.
void ga_memory_pending_pause(struct ga_root *root);
// Must be called before the driver destroys a stream. Afterwards no record with pending frees names
// its handle, because the driver may reuse the handle at once. Frees that have not executed stay
// pending: the driver calls a function when they have.
void ga_memory_pending_detach_stream(struct ga_root *root, void *stream);
// Clears what was pending in the context with a serial number, because the context has ended, and
// all its frees have executed.
void ga_memory_pending_sweep(struct ga_root *root, uint64_t serial);

#endif
