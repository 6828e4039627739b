// SPDX-License-Identifier: Apache-2.0
// The part of OpenCL's interface by which programs allocate memory, make contexts and ask for
// memory sizes. The declarations are our own, after the specification; the program loads the
// library. All files of cshim/opencl use it.
#ifndef GA_OPENCL_H
#define GA_OPENCL_H

#include "core/os.h"

typedef int32_t ga_cl_int;
typedef uint32_t ga_cl_uint;
typedef uint64_t ga_cl_bits; // cl_bitfield, and the properties types, which are as wide
typedef struct ga_cl_platform_object *ga_cl_platform;
typedef struct ga_cl_device_object *ga_cl_device;
typedef struct ga_cl_context_object *ga_cl_context;
typedef struct ga_cl_queue_object *ga_cl_queue;
typedef struct ga_cl_mem_object *ga_cl_mem;
typedef struct ga_cl_event_object *ga_cl_event;
typedef struct ga_cl_object
    *ga_cl_object;           // kernels, programs, samplers; their contents are not used
typedef void *ga_cl_address; // a function, or shared virtual memory

#define GA_CL_SUCCESS 0
#define GA_CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)
#define GA_CL_OUT_OF_RESOURCES (-5)
#define GA_CL_OUT_OF_HOST_MEMORY (-6) // of a context also: no memory on the device
#define GA_CL_INVALID_VALUE (-30)
#define GA_CL_INVALID_OPERATION (-59)
#define GA_CL_COMPLETE 0

#define GA_CL_PLATFORM_VERSION 0x0901u
#define GA_CL_PLATFORM_NAME 0x0902u
#define GA_CL_DEVICE_TYPE 0x1000u
#define GA_CL_DEVICE_MAX_MEM_ALLOC_SIZE 0x1010u
#define GA_CL_DEVICE_GLOBAL_MEM_SIZE 0x101Fu
#define GA_CL_DEVICE_NAME 0x102Bu
#define GA_CL_DEVICE_PARENT_DEVICE 0x1042u
#define GA_CL_DEVICE_PLATFORM 0x1031u
#define GA_CL_DEVICE_UUID 0x106Au        // cl_khr_device_uuid
#define GA_CL_DEVICE_PCI_BUS 0x4008u     // cl_nv_device_attribute_query
#define GA_CL_DEVICE_PCI_SLOT 0x4009u    // cl_nv_device_attribute_query: PCI device and function
#define GA_CL_DEVICE_PCI_DOMAIN 0x400Au  // cl_nv_device_attribute_query
#define GA_CL_DEVICE_FREE_MEMORY 0x4039u // cl_amd_device_attribute_query: KiB, up to two numbers
#define GA_CL_CONTEXT_DEVICES 0x1081u
#define GA_CL_CONTEXT_PLATFORM 0x1084u

#define GA_CL_DEVICE_TYPE_CPU (1ull << 1)
#define GA_CL_MEM_USE_HOST_PTR (1ull << 3)

// cl_image_format
struct ga_cl_format {
    ga_cl_uint order; // order of the channels
    ga_cl_uint type;  // type of each channel
};
// cl_image_desc
struct ga_cl_image {
    ga_cl_uint type;
    size_t width, height, depth, layers, row_pitch, slice_pitch;
    ga_cl_uint levels, samples;
    ga_cl_mem of; // the object whose memory the image uses, or NULL
};

// Returns the program's result if an object is refused, and stores the error.
static inline void *ga_opencl_refused(ga_cl_int *status, ga_cl_int why) {
    if (status)
        *status = why;
    return NULL;
}

// Reports whether an error may mean that the device had no memory for an object.
static inline bool ga_opencl_lacks(ga_cl_int status) {
    return status == GA_CL_MEM_OBJECT_ALLOCATION_FAILURE || status == GA_CL_OUT_OF_RESOURCES ||
           status == GA_CL_OUT_OF_HOST_MEMORY;
}

typedef void ga_cl_mem_ended(ga_cl_mem memory, void *arg);
typedef void ga_cl_context_ended(ga_cl_context context, void *arg);
typedef void ga_cl_event_changed(ga_cl_event event, ga_cl_int status, void *arg);
typedef void ga_cl_notify(const char *info, const void *more, size_t size, void *arg);
typedef void ga_cl_free(ga_cl_queue queue, ga_cl_uint count, ga_cl_address *addresses, void *arg);

// One number for each row of hooks.def.
enum ga_opencl_row {
#define GA_HOOK(symbol, ...) GA_OPENCL_ROW_##symbol,
#define GA_NEED(symbol, ...) GA_OPENCL_ROW_##symbol,
#include "opencl/hooks.def"
#undef GA_HOOK
#undef GA_NEED
    GA_OPENCL_ROWS
};

#define GA_HOOK(symbol, place, class, bytes, returns, parameters, ...)                             \
    typedef returns GA_FN_##symbol parameters;
#define GA_NEED(symbol, place, returns, parameters) typedef returns GA_FN_##symbol parameters;
#include "opencl/hooks.def"
#undef GA_HOOK
#undef GA_NEED

extern void
    *_Atomic ga_opencl_functions[GA_OPENCL_ROWS];    // the loader's functions, once they were found
extern void *_Atomic ga_opencl_next[GA_OPENCL_ROWS]; // the next layer's functions, once the library
                                                     // is a layer (layer.h)

static inline void *ga_opencl_real(enum ga_opencl_row row) {
    void *next = atomic_load_explicit(&ga_opencl_next[row], memory_order_relaxed);
    return next ? next : atomic_load_explicit(&ga_opencl_functions[row], memory_order_relaxed);
}
// Returns the function of a row for the library's own calls, or NULL. If the library is a layer,
// such a call goes to the next layer. It may be used only after the loader was found.
#define GA_OPENCL_REAL(symbol) ((GA_FN_##symbol *)ga_opencl_real(GA_OPENCL_ROW_##symbol))
// Calls the function of a row. True: it exists, and it succeeded.
#define GA_OPENCL_ASK(symbol, ...)                                                                 \
    ({                                                                                             \
        GA_FN_##symbol *ga_asked = GA_OPENCL_REAL(symbol);                                         \
        ga_asked &&ga_asked(__VA_ARGS__) == GA_CL_SUCCESS;                                         \
    })

#endif
