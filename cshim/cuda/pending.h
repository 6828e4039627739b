// SPDX-License-Identifier: Apache-2.0
// What was freed in stream order: it stays charged until its stream has executed the free, which
// an event recorded behind it tells; then it is its pool's to keep. Where the stream is expected to
// have the block again at once, the event is recorded only when somebody asks: it comes behind all
// that the stream has got by then.
#ifndef GA_CUDA_PENDING_H
#define GA_CUDA_PENDING_H

#include "core/root.h"
#include "cuda/driver.h"
#include "cuda/pool.h"

// ga_interface.reap.
uint64_t ga_cuda_pending_reap(struct ga_root *root, uint32_t device, uint64_t wanted);

// Where something is to pend, from before the driver is asked: afterwards the stream may have ended
// with its context.
struct ga_cuda_pending_at {
    ga_stream stream;
    ga_context handle; // of the stream's context
    uint64_t context;  // in which the stream is charged, by its serial number
    uint64_t epoch;    // ga_cuda_context_epoch
    bool ours;         // the program was seen to make the stream, and will be seen to end it
};
struct ga_cuda_pending_at ga_cuda_pending_at(struct ga_root *root, ga_stream stream);

// A block was freed there, and the driver has accepted that. Its bytes are on their way.
void ga_cuda_pending_add(struct ga_root *root, const struct ga_entry *entry,
                         const struct ga_cuda_pending_at *at);
// Takes back the last free of a block like this one that nobody looks at: by a stream in its
// context, since the driver uses a block again in its own stream at once; or, of stream NULL, of
// this very address, on whatever stream. (An address alone says little: the driver gives it out
// again before the free is known to be done.) It is no longer pending then, and its bytes are on
// their way. *tag: what it was charged in. False: there is none.
bool ga_cuda_pending_recall(struct ga_root *root, const struct ga_entry *like, ga_stream stream,
                            uint64_t context, uint16_t *tag);
// A stream had a block of these bytes again that it had freed.
void ga_cuda_pending_expect(struct ga_root *root, ga_stream stream, uint64_t bytes);
// What was freed on a stream, or with NULL on any, gets the events that are missing: the stream is
// about to end, or a capture to begin, in which streams may not be asked. False: somebody asks the
// driver for longer than anyone waits.
bool ga_cuda_pending_watch(struct ga_root *root, ga_stream stream);
// Who a stream is to what it freed. False: nothing is pending or kept on the device, or nobody.
bool ga_cuda_pending_user(struct ga_root *root, uint32_t device,
                          const struct ga_cuda_pending_at *at, struct ga_cuda_pool_user *user);

// Calls run(argument) when the stream has executed all that is in it now. False: it never will.
bool ga_cuda_pending_call(struct ga_root *root, const struct ga_cuda_pending_at *at,
                          void (*run)(struct ga_root *root, void *argument), void *argument);

// A stream is about to end: its handle may come again.
void ga_cuda_pending_stream_ends(struct ga_root *root, ga_stream stream);
// It is gone, and nothing can be asked of it.
void ga_cuda_pending_stream_gone(struct ga_root *root, ga_stream stream);
// The context with a serial number has ended: what was pending there has executed.
void ga_cuda_pending_sweep(struct ga_root *root, uint64_t serial);

#endif
