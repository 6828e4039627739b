// SPDX-License-Identifier: Apache-2.0
// Finds the device that a call concerns: the device of the calling thread's current context. The
// driver names devices by ordinal; all other code, and "number" in this file, uses gpuarb's number
// (core/device.h).
//
// Each call asks the driver for the current context, because the CUDA runtime changes it through
// tables that no preloaded library sees. With several devices each call also asks for the device:
// the address of an ended context may be used for a context on another device.
#ifndef GA_CUDA_DEVICE_H
#define GA_CUDA_DEVICE_H

#include "core/root.h"
#include "cuda/driver.h"
#include "cuda/state.h"

// Type of the function that is called for a context that is new to the calling thread. It sets
// ga_self.serial and ga_self.stands_for. The pointer is set to first_use in hooks.c when the driver
// is found. It is a pointer because this file must not depend on thread_slot.c.
typedef bool ga_cuda_device_first_use(struct ga_root *root, ga_context context, uint32_t device,
                                      uint64_t epoch);
extern _Atomic(ga_cuda_device_first_use *) ga_cuda_device_first_use_function;

// Does the work of ga_cuda_device_current for a context that the calling thread uses for the first
// time. Inserts the context into the table of contexts if needed.
int ga_cuda_device_find(struct ga_root *root, ga_context context, uint64_t *serial);
// Returns the number of a device, given its ordinal. −1: it cannot be arbitrated.
int ga_cuda_device_number(struct ga_root *root, ga_cu_device ordinal);
// Returns the ordinal of a device that has a number.
ga_cu_device ga_cuda_device_ordinal(struct ga_root *root, uint32_t device);
// Returns the number of the device of a memory location; −1: no device, or a device that cannot be
// arbitrated. An unknown kind of location counts as the current device.
int ga_cuda_device_at(struct ga_root *root, const struct ga_cu_location *at);
// Reports whether the process has several devices, or may have.
bool ga_cuda_device_several(struct ga_root *root);
// Returns the device of a stream, and stores the serial number of its context. For a stream that
// the library has not seen the program make, returns the device of the current context. The driver
// is not asked if the calling thread has used the stream's context last.
int ga_cuda_device_of_stream(struct ga_root *root, ga_stream stream, uint64_t *serial);
// Finds a stream that the library has seen the program make. entry->context is the serial number of
// the context that the stream is charged in. entry->kind tells whether the stream was made in that
// context or in a green context of it. False: not found, or the stream has ended.
bool ga_cuda_device_find_stream(struct ga_root *root, ga_stream stream, struct ga_entry *entry);
enum { GA_CUDA_STREAM_PLAIN, GA_CUDA_STREAM_GREEN };

// Returns the current device, and stores the serial number of the context that its memory is
// charged in. −1: there is no context; then the driver's call will fail.
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
