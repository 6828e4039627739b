// SPDX-License-Identifier: Apache-2.0
// Makes and ends the records of pools (pool.h).
#include "cuda/pool.h"

#include "core/import.h"
#include "cuda/device.h"
#include "cuda/stream_order.h"

// A pool of managed memory may have no device: then it is charged to the device of the stream on
// which the program first allocates from it. It gets its record in that allocation, not here.
ga_result ga_cuda_pool_record(ga_result result, const ga_pool *pool,
                              const struct ga_cu_location *at, int type) {
    struct ga_root *root = result == GA_CUDA_SUCCESS && pool && at ? ga_root_get() : NULL;
    if (!root)
        return result;
    int device = ga_cuda_in_host(at->type) ? GA_MEMORY_POOL_IN_HOST : ga_cuda_device_at(root, at);
    if (device < 0 && type == GA_CUDA_ALLOCATION_MANAGED)
        return result;
    struct ga_memory_pool *met = ga_memory_pool_make(root, &ga_cuda_stream_order, *pool, device);
    if (met)
        ga_memory_pool_release(root, met);
    return result;
}

ga_result ga_cuda_pool_destroy(GA_FN_cuMemPoolDestroy *real, ga_pool handle) {
    struct ga_root *root = ga_root_get();
    if (!root)
        return real(handle);
    struct ga_memory_pool *pool = ga_memory_pool_destroy_begin(root, &ga_cuda_stream_order, handle);
    ga_result result = real(handle);
    ga_memory_pool_destroy_end(root, pool, handle, result == GA_CUDA_SUCCESS);
    if (result == GA_CUDA_SUCCESS)
        ga_import_sweep(root, (uint64_t)(uintptr_t)handle);
    return result;
}

ga_result ga_cuda_pool_trim(GA_FN_cuMemPoolTrimTo *real, ga_pool handle, size_t keep) {
    struct ga_root *root = ga_root_get();
    ga_result result = real(handle, keep);
    if (root && result == GA_CUDA_SUCCESS)
        ga_memory_pool_trimmed(root, &ga_cuda_stream_order, handle);
    return result;
}

ga_result ga_cuda_pool_trim_graphs(GA_FN_cuDeviceGraphMemTrim *real, ga_cu_device device) {
    struct ga_root *root = ga_root_get();
    ga_result result = real(device);
    int number = root && result == GA_CUDA_SUCCESS ? ga_cuda_device_number(root, device) : -1;
    struct ga_memory_pool *pool =
        number >= 0 ? ga_cuda_stream_order_graphs(root, (uint32_t)number) : NULL;
    if (pool)
        ga_memory_pool_update(root, pool);
    return result;
}
