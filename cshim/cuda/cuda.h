// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's binary interface that the library uses. It has declarations of its own,
// because the macros of the vendor's cuda.h replace the names of the first versions of functions.
#ifndef GA_CUDA_H
#define GA_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int ga_result;       // CUresult
typedef int ga_cu_device;    // CUdevice
typedef uint64_t ga_address; // CUdeviceptr
typedef struct ga_cu_context *ga_context;
typedef struct ga_cu_green_context *ga_green;
typedef struct ga_cu_stream *ga_stream;
typedef struct ga_cu_event *ga_event;
typedef struct ga_cu_pool *ga_pool;
typedef uint64_t ga_memory; // CUmemGenericAllocationHandle
typedef struct ga_cu_array_object *ga_array;
typedef struct ga_cu_mipmap_object *ga_mipmap;
typedef struct ga_cu_graph *ga_graph;
typedef struct ga_cu_node *ga_node;
typedef struct ga_cu_exec *ga_exec;
typedef void ga_host_function(void *argument); // CUhostFn
struct ga_cu_ipc {
    uint8_t bytes[64]; // CUipcMemHandle, handed over by value
};

struct ga_cu_uuid {
    uint8_t bytes[16];
};

// CUDA_ARRAY_DESCRIPTOR and CUDA_ARRAY3D_DESCRIPTOR. Their first versions have 32-bit fields.
struct ga_cu_array_v1 {
    unsigned int width, height;
    int format; // CUarray_format
    unsigned int channels;
};
struct ga_cu_array {
    size_t width, height;
    int format;
    unsigned int channels;
};
struct ga_cu_array3d_v1 {
    unsigned int width, height, depth;
    int format;
    unsigned int channels, flags;
};
struct ga_cu_array3d {
    size_t width, height, depth;
    int format;
    unsigned int channels, flags;
};

// CUmemLocation
struct ga_cu_location {
    int type; // CUmemLocationType
    int id;   // for a device: its ordinal; for a locality domain: the lowest byte is the device's
              // ordinal
};

// First fields of CUmemAllocationProp.
struct ga_cu_memory_properties {
    int type;
    int handle_types;
    struct ga_cu_location location;
};

// CUmemAllocationProp with spare room, because the driver writes the whole structure.
struct ga_cu_memory_properties_buffer {
    struct ga_cu_memory_properties properties;
    uint64_t reserved[30];
};

// First fields of CUDA_EXTERNAL_MEMORY_HANDLE_DESC.
struct ga_cu_external {
    int type;
    void *handle[2];
    unsigned long long bytes;
};

// First fields of CUmemPoolProps.
struct ga_cu_pool_properties {
    int allocation_type;
    int handle_types;
    struct ga_cu_location location;
};

// CUDA_MEM_ALLOC_NODE_PARAMS
struct ga_cu_alloc_node {
    struct ga_cu_pool_properties pool;
    uint64_t pool_more[9];
    const void *access;
    size_t accesses;
    size_t bytes;
    ga_address address;
};

// CUDA_GRAPH_INSTANTIATE_PARAMS
struct ga_cu_instantiate {
    uint64_t flags;
    ga_stream upload;
    ga_node error;
    int result;
};

// The values of CUresult that the library returns or compares with.
#define GA_CUDA_SUCCESS 0
#define GA_CUDA_OUT_OF_MEMORY 2
#define GA_CUDA_NOT_FOUND 500
#define GA_CUDA_NOT_READY 600

#define GA_CUDA_LIMIT_BUFFER 1 // CU_LIMIT_PRINTF_FIFO_SIZE
#define GA_CUDA_LIMIT_HEAP 2   // CU_LIMIT_MALLOC_HEAP_SIZE

#define GA_CUDA_STREAM_LEGACY ((ga_stream)1)
#define GA_CUDA_STREAM_PER_THREAD ((ga_stream)2)
#define GA_CUDA_CAPTURE_NONE 0
#define GA_CUDA_CAPTURE_MODE_RELAXED 2
#define GA_CUDA_ATTRIBUTE_TEXTURE_ALIGNMENT 14
#define GA_CUDA_ALLOCATION_MANAGED 2 // CUmemAllocationType
#define GA_CUDA_LOCATION_DEVICE 1
#define GA_CUDA_LOCATION_HOST 2 // 3: a NUMA node of the host; 4: the calling thread's node
#define GA_CUDA_LOCATION_HOST_NUMA_CURRENT 4
#define GA_CUDA_LOCATION_DOMAIN 6 // a locality domain: a part of a device; since CUDA 13.4
#define GA_CUDA_NODE_GRAPH 4      // CUgraphNodeType
#define GA_CUDA_NODE_ALLOC 10
#define GA_CUDA_NODE_FREE 11
#define GA_CUDA_INSTANTIATE_UPLOAD 2u
#define GA_CUDA_POINTER_ORDINAL 9 // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
#define GA_CUDA_POINTER_POOL 17   // CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
#define GA_CUDA_POOL_RESERVED 5   // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
#define GA_CUDA_GRAPH_RESERVED 2  // CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
#define GA_CUDA_ARRAY_LAYERED 0x01u
#define GA_CUDA_ARRAY_CUBEMAP 0x04u
#define GA_CUDA_ARRAY_SPARSE 0x40u
#define GA_CUDA_ARRAY_DEFERRED_MAPPING 0x80u

// Reports whether a CUmemLocationType names host memory.
static inline bool ga_cuda_in_host(int location_type) {
    return location_type >= GA_CUDA_LOCATION_HOST &&
           location_type <= GA_CUDA_LOCATION_HOST_NUMA_CURRENT;
}

#endif
