// SPDX-License-Identifier: Apache-2.0
// Counts the stream captures of the program, and tells whether a stream is captured. Calls in a
// captured stream become graph nodes and execute later. While a capture is open, a driver call that
// might wait invalidates it, unless the calling thread has set the relaxed capture mode. Used by
// async.c, graph.c, stream.c and stream_order.c.
#ifndef GA_CUDA_CAPTURE_H
#define GA_CUDA_CAPTURE_H

#include "cuda/driver.h"

// Counts the end of a capture. A capture whose beginning the library has not seen was not counted,
// so the counter stops at 0.
static inline void ga_cuda_capture_end(void) {
    uint32_t now = atomic_load(&ga_cuda_captures);
    while (now != 0 && !atomic_compare_exchange_weak(&ga_cuda_captures, &now, now - 1))
        ;
}
// Adjust the counter after the driver's answer to a call that begins a capture (counted before the
// call), or ends one. Return result.
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

// Reports whether a call in the stream becomes a node of a graph. In doubt returns true, for
// example for the legacy stream while another stream is captured: the driver refuses that call
// itself.
static inline bool ga_cuda_capturing(ga_stream stream) {
    int status = GA_CUDA_CAPTURE_NONE;
    if (GA_LIKELY(atomic_load(&ga_cuda_captures) == 0) || !GA_REAL(cuStreamIsCapturing))
        return false;
    return GA_REAL(cuStreamIsCapturing)(stream, &status) != GA_CUDA_SUCCESS ||
           status != GA_CUDA_CAPTURE_NONE;
}

// Sets the calling thread's capture mode, and returns the previous mode. In relaxed mode a thread
// may query events and pools during a capture; in other modes that invalidates the capture.
static inline int ga_cuda_capture_exchange(int mode) {
    if (GA_REAL(cuThreadExchangeStreamCaptureMode))
        GA_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return mode;
}

#endif
