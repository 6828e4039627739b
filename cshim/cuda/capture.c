// SPDX-License-Identifier: Apache-2.0
#include "cuda/capture.h"

_Atomic uint32_t ga_cuda_captures;

// One whose beginning nobody saw was not counted.
static void end_one(void) {
    uint32_t now = atomic_load(&ga_cuda_captures);
    while (now != 0 && !atomic_compare_exchange_weak(&ga_cuda_captures, &now, now - 1))
        ;
}

ga_result ga_cuda_capture_began(ga_result result) {
    if (result != GA_CUDA_SUCCESS)
        end_one();
    return result;
}

ga_result ga_cuda_capture_ended(ga_result result) {
    if (result == GA_CUDA_SUCCESS)
        end_one();
    return result;
}
