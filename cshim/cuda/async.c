// SPDX-License-Identifier: Apache-2.0
// Wrappers for stream-ordered allocations and frees (async.h). memory/async.h and memory/pending.h
// account for blocks of device pools; cuda/host.h accounts for pools in host memory.
#include "cuda/async.h"

#include "cuda/capture.h"
#include "cuda/host.h"
#include "cuda/memory.h"
#include "cuda/stream_order.h"
#include "memory/async.h"
#include "memory/pending.h"

// An allocation during the driver's call. At most one member has a root. An allocation without any
// root is not accounted for: it is captured, it has 0 bytes, or its device is not arbitrated.
struct allocation {
    struct ga_memory_async device; // used if the pool is on a device
    struct ga_allocation host;     // used if the pool is in host memory
};

// Reserves the bytes of an allocation. how: ignored for pools in host memory. False: refused. True:
// the caller must call settle after the driver's answer.
static bool open_allocation(struct allocation *c, uint64_t bytes, ga_pool pool, ga_stream stream,
                            enum ga_memory_acquire_how how) {
    uint64_t context;
    struct ga_root *root = ga_root_get();
    c->device.acquisition.root = c->host.root = NULL;
    if (bytes == 0 || ga_cuda_capturing(stream))
        return true;
    if (!root)
        return !ga_root_denies();
    int device = ga_cuda_device_of_stream(root, stream, &context);
    if (device < 0)
        return true;
    struct ga_memory_at at = ga_cuda_stream_order_at(root, stream);
    switch (ga_memory_async_open(&c->device, root, &at, device, pool, bytes, how)) {
    case GA_MEMORY_REFUSED:
        return false;
    case GA_MEMORY_OF_HOST:
        return ga_cuda_host_open_pooled(&c->host, root, bytes);
    case GA_MEMORY_ACQUIRED:
    case GA_MEMORY_OF_NONE:
        break;
    }
    return true;
}

// Settles an allocation after the driver's answer. *result may become an error.
static enum ga_memory_outcome settle(struct allocation *c, ga_result *result,
                                     const ga_address *address) {
    ga_address at = *result == GA_CUDA_SUCCESS ? *address : 0;
    void *in_host = (void *)(uintptr_t)at;
    if (c->device.acquisition.root)
        return ga_memory_async_finish(&c->device, at);
    *result = ga_cuda_host_settle(&c->host, *result, &in_host, GA_CUDA_HOST_POOLED);
    return GA_MEMORY_DONE;
}

// Reserves the bytes, calls the driver, and settles. If the pool grew by more bytes than the limit
// has left, settle has freed the block again. Then all its bytes are requested as new memory, for
// which the program may wait, and the driver is called a second time. If the driver has no memory,
// ga_admit_again decides.
#define ALLOCATES(real, pool, effective, address, bytes, ...)                                      \
    ({                                                                                             \
        struct allocation c;                                                                       \
        ga_result result;                                                                          \
        enum ga_memory_outcome outcome = GA_MEMORY_DONE;                                           \
        enum ga_memory_acquire_how how = GA_MEMORY_ACQUIRE;                                        \
        c.device.full = 0;                                                                         \
        do {                                                                                       \
            how = outcome == GA_MEMORY_AGAIN ? GA_MEMORY_ACQUIRE_NEW : how;                        \
            if (!open_allocation(&c, bytes, pool, effective, how))                                 \
                return GA_CUDA_OUT_OF_MEMORY;                                                      \
            result = real(address, bytes, __VA_ARGS__);                                            \
            outcome = settle(&c, &result, address);                                                \
        } while ((outcome == GA_MEMORY_AGAIN && how == GA_MEMORY_ACQUIRE) ||                       \
                 ga_admit_again(c.device.acquisition.root, &c.device.full,                         \
                                result == GA_CUDA_OUT_OF_MEMORY));                                 \
        outcome == GA_MEMORY_DONE ? result : GA_CUDA_OUT_OF_MEMORY;                                \
    })

ga_result ga_cuda_alloc_async(GA_FN_cuMemAllocAsync *real, ga_stream effective, ga_address *address,
                              size_t bytes, ga_stream stream) {
    return ALLOCATES(real, NULL, effective, address, bytes, stream);
}

ga_result ga_cuda_alloc_from_pool(GA_FN_cuMemAllocFromPoolAsync *real, ga_stream effective,
                                  ga_address *address, size_t bytes, ga_pool pool,
                                  ga_stream stream) {
    return ALLOCATES(real, pool, effective, address, bytes, pool, stream);
}

ga_result ga_cuda_free_async(GA_FN_cuMemFreeAsync *real, ga_stream effective, ga_address address,
                             ga_stream stream) {
    struct ga_allocation c = {.root = ga_root_get()};
    // The driver frees a captured block when the graph is launched: the block stays charged until
    // then.
    if (!c.root || ga_cuda_capturing(effective))
        return real(address, stream);
    struct ga_memory_at at = ga_cuda_stream_order_at(c.root, effective);
    bool pooled = ga_memory_pool_remove(c.root, address, &c.entry);
    enum ga_cuda_freed what = pooled ? GA_CUDA_FREED_POOLED : ga_cuda_memory_remove(&c, address);
    ga_result result = real(address, stream);
    if (result == GA_CUDA_SUCCESS && what == GA_CUDA_FREED_POOLED)
        ga_memory_pending_add(c.root, &c.entry, &at);
    else if (result == GA_CUDA_SUCCESS && what == GA_CUDA_FREED_BLOCK)
        ga_memory_pending_add_plain(c.root, &c.entry, &at);
    else
        return ga_cuda_memory_freed(&c, what, result);
    return result;
}
