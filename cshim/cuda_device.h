// SPDX-License-Identifier: Apache-2.0
// Which device a call is about: that of the calling thread's current context.
//
// The driver is asked for the context each time (contexts change hands through tables that no
// preload sees), and for the device too where there are several: a context's address may be used
// again for one on another device. With one device there is nothing to mistake.
#ifndef GA_CUDA_DEVICE_H
#define GA_CUDA_DEVICE_H

#include "driver.h"
#include "root.h"

// The slow way of ga_cuda_device_current: a context not met on this thread before. It is noticed
// then.
int ga_cuda_device_find(struct ga_root *root, ga_context context, uint64_t *home);
// Makes the device known (its UUID). False: it cannot be arbitrated.
bool ga_cuda_device_know(struct ga_root *root, ga_cu_device ordinal);
// The ordinal of the device that a place is, or is a part of; of the current one for a kind of
// place that came after these. −1: none, or one that cannot be arbitrated.
int ga_cuda_device_at(struct ga_root *root, const struct ga_cu_location *at);
// More than one device in this process.
bool ga_cuda_device_several(struct ga_root *root);
// The device of a stream, or of the current context for a stream that is none of ours.
int ga_cuda_device_of_stream(struct ga_root *root, ga_stream stream, uint64_t *context);

// The ordinal of the current device, and the context that its memory is charged in; or −1 (no
// context: the driver's own error will say so).
static inline int ga_cuda_device_current(struct ga_root *root, uint64_t *context) {
    ga_context now = NULL;
    if (GA_UNLIKELY(GA_REAL(cuCtxGetCurrent) == NULL ||
                    GA_REAL(cuCtxGetCurrent)(&now) != GA_CUDA_SUCCESS || now == NULL))
        return -1;
    if (GA_LIKELY(ga_self.context == (uint64_t)(uintptr_t)now &&
                  ga_self.context_epoch ==
                      atomic_load_explicit(&root->context_epoch, memory_order_acquire))) {
        ga_cu_device device = -1;
        *context = ga_self.home;
        if (GA_LIKELY(atomic_load_explicit(&root->device_count, memory_order_relaxed) == 1))
            return (int)ga_self.device;
        if (GA_REAL(cuCtxGetDevice)(&device) == GA_CUDA_SUCCESS && device == (int)ga_self.device)
            return device;
    }
    return ga_cuda_device_find(root, now, context);
}

#endif
