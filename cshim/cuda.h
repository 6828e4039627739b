// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's binary interface that the shim speaks. Declarations of our
// own: no vendor header is needed, and cuda.h could not be used anyway, since its
// macros rename the first versions of the functions away.
#ifndef GA_CUDA_H
#define GA_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int ga_result;       // CUresult
typedef int ga_cu_device;    // CUdevice
typedef uint64_t ga_address; // CUdeviceptr
typedef struct ga_cu_context *ga_context;
typedef struct ga_cu_stream *ga_stream;
typedef struct ga_cu_event *ga_event;
typedef struct ga_cu_pool *ga_pool;

struct ga_cu_uuid {
    uint8_t bytes[16];
};

// Of CUresult, what the shim itself returns or looks for.
#define GA_CUDA_SUCCESS 0
#define GA_CUDA_OUT_OF_MEMORY 2
#define GA_CUDA_NOT_FOUND 500
#define GA_CUDA_NOT_READY 600

#define GA_CUDA_STREAM_LEGACY ((ga_stream)1)
#define GA_CUDA_STREAM_PER_THREAD ((ga_stream)2)
#define GA_CUDA_EVENT_DISABLE_TIMING 2u
#define GA_CUDA_CAPTURE_NONE 0
#define GA_CUDA_CAPTURE_MODE_RELAXED 2
#define GA_CUDA_ATTRIBUTE_TEXTURE_ALIGNMENT 14

#endif
