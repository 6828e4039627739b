// SPDX-License-Identifier: Apache-2.0
// Stream capture, and how not to break one: what is captured does not happen now, and a call
// that might wait ends the capture of whoever has one, unless the thread says that it knows.
#ifndef GA_CUDA_CAPTURE_H
#define GA_CUDA_CAPTURE_H

#include "cuda/driver.h"

// One whose beginning nobody saw was not counted.
static inline void ga_cuda_capture_end(void) {
    uint32_t now = atomic_load(&ga_cuda_captures);
    while (now != 0 && !atomic_compare_exchange_weak(&ga_cuda_captures, &now, now - 1))
        ;
}
// What the driver answered when it was asked to begin a capture, which was counted before it was
// asked; and to end one.
static inline ga_result ga_cuda_capture_began(ga_result result) {
    if (result != GA_CUDA_SUCCESS)
        ga_cuda_capture_end();
    return result;
}
static inline ga_result ga_cuda_capture_ended(ga_result result) {
    if (result == GA_CUDA_SUCCESS)
        ga_cuda_capture_end();
    return result;
}

// What is put into the stream becomes a node of a graph. In doubt (the legacy stream while
// another one is captured) yes: it is left to the driver, which refuses it.
static inline bool ga_cuda_capturing(ga_stream stream) {
    int status = GA_CUDA_CAPTURE_NONE;
    if (GA_LIKELY(atomic_load(&ga_cuda_captures) == 0) || !GA_REAL(cuStreamIsCapturing))
        return false;
    return GA_REAL(cuStreamIsCapturing)(stream, &status) != GA_CUDA_SUCCESS ||
           status != GA_CUDA_CAPTURE_NONE;
}

// A thread in relaxed mode may ask about events and pools while a stream is captured; in any other
// mode that would break the capture. Returns the mode that was in force.
static inline int ga_cuda_capture_exchange(int mode) {
    if (GA_REAL(cuThreadExchangeStreamCaptureMode))
        GA_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return mode;
}

#endif
