// SPDX-License-Identifier: Apache-2.0
// Which device a call is about: that of the calling thread's current context. The driver knows it
// by an ordinal; everybody else by its number (core/device.h), which is what is meant below.
//
// The driver is asked for the context each time (contexts change hands through tables that no
// preload sees), and for the device too where there are several: a context's address may be used
// again for one on another device. With one device there is nothing to mistake.
#ifndef GA_CUDA_DEVICE_H
#define GA_CUDA_DEVICE_H

#include "core/root.h"
#include "cuda/driver.h"
#include "cuda/state.h"

// The function for a context that is new to the calling thread: ga_cuda_thread_slot_meet, which
// finds ga_self.serial and ga_self.stands_for. The pointer is set when the driver is met.
typedef bool ga_cuda_device_meet(struct ga_root *root, ga_context context, uint32_t device,
                                 uint64_t epoch);
extern _Atomic(ga_cuda_device_meet *) ga_cuda_device_meets;

// The slow way of ga_cuda_device_current: a context not met on this thread before. It is noticed
// then.
int ga_cuda_device_find(struct ga_root *root, ga_context context, uint64_t *serial);
// The number of the driver's device. −1: it cannot be arbitrated.
int ga_cuda_device_number(struct ga_root *root, ga_cu_device ordinal);
// And back, of one that was numbered.
ga_cu_device ga_cuda_device_ordinal(struct ga_root *root, uint32_t device);
// The device that a place is, or is a part of; the current one for a kind of place that came after
// these. −1: none, or one that cannot be arbitrated.
int ga_cuda_device_at(struct ga_root *root, const struct ga_cu_location *at);
// More than one device in this process.
bool ga_cuda_device_several(struct ga_root *root);
// The device of a stream, or of the current context for a stream that is none of ours. The driver
// is not asked where the calling thread has met the stream's context.
int ga_cuda_device_of_stream(struct ga_root *root, ga_stream stream, uint64_t *serial);
// Finds a stream that the program was seen to make, and that has not ended: in which context it is
// charged, and whether it was made in that one, or in one that stands for it (ga_entry.kind).
bool ga_cuda_device_find_stream(struct ga_root *root, ga_stream stream, struct ga_entry *entry);
enum { GA_CUDA_STREAM_PLAIN, GA_CUDA_STREAM_GREEN };

// The current device, and the serial number of the context that its memory is charged in; or −1 (no
// context: the driver's own error will say so).
static inline int ga_cuda_device_current(struct ga_root *root, uint64_t *serial) {
    ga_context now = NULL;
    if (GA_UNLIKELY(!GA_ASK(cuCtxGetCurrent, &now) || now == NULL))
        return -1;
    if (GA_LIKELY(ga_self.context == (uint64_t)(uintptr_t)now &&
                  ga_self.context_epoch ==
                      atomic_load_explicit(&ga_cuda(root)->context_epoch, memory_order_acquire))) {
        ga_cu_device ordinal = -1;
        *serial = ga_self.serial;
        if (GA_LIKELY(atomic_load_explicit(&ga_cuda(root)->device_count, memory_order_relaxed) ==
                      1))
            return (int)ga_self.device;
        if (GA_REAL(cuCtxGetDevice)(&ordinal) == GA_CUDA_SUCCESS &&
            ga_cuda_device_number(root, ordinal) == (int)ga_self.device)
            return (int)ga_self.device;
    }
    return ga_cuda_device_find(root, now, serial);
}

#endif
