// SPDX-License-Identifier: Apache-2.0
// Implements struct ga_memory_driver for CUDA, and wraps the calls that synchronise
// (stream_order.h).
#include "cuda/stream_order.h"

#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "memory/pending.h"

// Streams

static bool is_handle(ga_stream stream) {
    return (uintptr_t)stream > (uintptr_t)GA_CUDA_STREAM_PER_THREAD;
}

// Finds the context of the stream. If the library has seen the program make the stream in the
// context that this thread used last, the thread has the context's handle. Otherwise the driver is
// asked for the stream's context. A default stream is in the thread's current context.
struct ga_memory_at ga_cuda_stream_order_at(struct ga_root *root, ga_stream stream) {
    struct ga_memory_at at = {
        .driver = &ga_cuda_stream_order,
        .stream = stream,
        .thread = stream == GA_CUDA_STREAM_PER_THREAD ? ga_self.number : 0,
        .epoch = ga_cuda_context_epoch(root),
    };
    struct ga_entry entry;
    struct ga_entry context;
    ga_context handle = NULL;
    bool known = ga_cuda_device_find_stream(root, stream, &entry);
    if (known && entry.kind == GA_CUDA_STREAM_PLAIN && ga_self.serial == entry.context &&
        !ga_self.stands_for && ga_self.context_epoch == at.epoch)
        handle = (ga_context)(uintptr_t)ga_self.context;
    else if (!is_handle(stream) || !GA_ASK(cuStreamGetCtx, stream, &handle))
        GA_REAL(cuCtxGetCurrent)(&handle);
    at.handle = handle;
    if (known)
        at.context = entry.context;
    else if (ga_cuda_context_find(root, (uint64_t)(uintptr_t)handle, &context))
        at.context = context.context;
    return at;
}

// Reports whether a stream has executed its work. For the query the stream's context is made
// current; then the thread's own context is restored. The thread's capture mode is relaxed
// meanwhile, because cuStreamQuery would otherwise invalidate a capture of the program.
static bool query_in(ga_context wanted, ga_stream stream) {
    ga_context current = NULL;
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    GA_REAL(cuCtxGetCurrent)(&current);
    bool push = current != wanted && GA_REAL(cuCtxPopCurrent_v2);
    bool passed = (!push || GA_ASK(cuCtxPushCurrent_v2, wanted));
    if (passed) {
        passed = GA_REAL(cuStreamQuery)(stream) == GA_CUDA_SUCCESS;
        if (push)
            GA_REAL(cuCtxPopCurrent_v2)(&current);
    }
    ga_cuda_capture_exchange(mode);
    return passed;
}

// Reports whether a stream has executed its work. False without asking the driver in three cases. A
// stream that the library has not seen the program make may have ended. Another thread's default
// stream has the same handle as this thread's. A query could disturb a stream that is captured, or
// that a capture may depend on.
static bool passed(struct ga_root *root, const struct ga_memory_at *at) {
    struct ga_entry entry;
    int status = GA_CUDA_CAPTURE_NONE;
    bool captures = atomic_load(&ga_cuda_captures) != 0;
    if (!at->handle || !at->stream || !GA_REAL(cuStreamQuery))
        return false;
    if (!is_handle(at->stream))
        return !captures && (at->thread == 0 || at->thread == ga_self.number) &&
               query_in(at->handle, at->stream);
    if (!ga_cuda_device_find_stream(root, at->stream, &entry))
        return false;
    if (captures &&
        (!GA_ASK(cuStreamIsCapturing, at->stream, &status) || status != GA_CUDA_CAPTURE_NONE))
        return false;
    return query_in(at->handle, at->stream);
}

static bool call_after(void *stream, void (*function)(void *), void *argument) {
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    bool called =
        !ga_cuda_capturing(stream) && GA_ASK(cuLaunchHostFunc, stream, function, argument);
    ga_cuda_capture_exchange(mode);
    return called;
}

static bool ended(struct ga_root *root, const struct ga_memory_at *at) {
    return ga_cuda_context_any_ended(root, at->epoch) && !ga_cuda_context_exists(root, at->context);
}

// Pools

static bool reserved(struct ga_root *root, const struct ga_memory_pool *pool, uint64_t *bytes) {
    if (pool->kind == GA_MEMORY_POOL_OF_GRAPHS)
        return GA_ASK(cuDeviceGetGraphMemAttribute,
                      ga_cuda_device_ordinal(root, (uint32_t)pool->device), GA_CUDA_GRAPH_RESERVED,
                      bytes);
    return pool->handle &&
           GA_ASK(cuMemPoolGetAttribute, pool->handle, GA_CUDA_POOL_RESERVED, bytes);
}

static bool trim(struct ga_root *root, const struct ga_memory_pool *pool, uint64_t keep) {
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    bool trimmed =
        pool->kind == GA_MEMORY_POOL_OF_GRAPHS
            ? GA_ASK(cuDeviceGraphMemTrim, ga_cuda_device_ordinal(root, (uint32_t)pool->device))
            : pool->handle && GA_ASK(cuMemPoolTrimTo, pool->handle, keep);
    ga_cuda_capture_exchange(mode);
    return trimmed;
}

// Returns a device's pool, as answered by the driver's function ask; NULL: the driver has no
// answer.
static ga_pool pool_by(ga_result (*ask)(ga_pool *, ga_cu_device), ga_cu_device ordinal) {
    ga_pool handle = NULL;
    return ask && ask(&handle, ordinal) == GA_CUDA_SUCCESS ? handle : NULL;
}

static void *pool_of_device(struct ga_root *root, uint32_t device) {
    return pool_by(GA_REAL(cuDeviceGetMemPool), ga_cuda_device_ordinal(root, device));
}

static void *pool_of_block(uint64_t address) {
    ga_pool handle = NULL;
    return GA_ASK(cuPointerGetAttribute, &handle, GA_CUDA_POINTER_POOL, address) ? handle : NULL;
}

static int device_of_pool(struct ga_root *root, void *handle, int otherwise) {
    if (!ga_cuda_device_several(root))
        return otherwise;
    for (int ordinal = 0; ordinal < (int)atomic_load(&ga_cuda(root)->device_count); ordinal++)
        if (pool_by(GA_REAL(cuDeviceGetDefaultMemPool), ordinal) == handle ||
            pool_by(GA_REAL(cuDeviceGetMemPool), ordinal) == handle)
            return ga_cuda_device_number(root, ordinal);
    return otherwise;
}

struct ga_memory_pool *ga_cuda_stream_order_graphs(struct ga_root *root, uint32_t device) {
    return ga_memory_pool_of_kind(root, &ga_cuda_stream_order, device, GA_MEMORY_POOL_OF_GRAPHS);
}

static bool free_now(uint64_t address) {
    int mode = ga_cuda_capture_exchange(GA_CUDA_CAPTURE_MODE_RELAXED);
    ga_result result = GA_REAL(cuMemFree_v2)(address);
    ga_cuda_capture_exchange(mode);
    return result == GA_CUDA_SUCCESS;
}

const struct ga_memory_driver ga_cuda_stream_order = {
    .reserved = reserved,
    .trim = trim,
    .pool_of_device = pool_of_device,
    .pool_of_block = pool_of_block,
    .device_of_pool = device_of_pool,
    .free = free_now,
    .passed = passed,
    .call_after = call_after,
    .ended = ended,
    .library = &ga_driver_handle,
};

// Synchronisations

// Returns the root, or NULL if nothing was ever freed in stream order or allocated from a pool.
static struct ga_root *root_if_pending(void) {
    struct ga_root *root = ga_root_get();
    return root && ga_memory_pending_any(root) ? root : NULL;
}

// Clears the frees that have executed, if the driver has synchronised. Returns result.
static ga_result synchronized(struct ga_root *root, const struct ga_memory_at *at, uint64_t turn,
                              ga_result result) {
    if (result == GA_CUDA_SUCCESS)
        ga_memory_pending_synchronized(root, at, turn);
    return result;
}

ga_result ga_cuda_sync_stream(GA_FN_cuStreamSynchronize *real, ga_stream effective,
                              ga_stream stream) {
    struct ga_root *root = root_if_pending();
    if (!root)
        return real(stream);
    struct ga_memory_at at = ga_cuda_stream_order_at(root, effective);
    uint64_t turn = ga_memory_pending_turn(root);
    return synchronized(root, &at, turn, real(stream));
}

// The driver does not report on which stream an event was recorded, so all streams are asked.
ga_result ga_cuda_sync_event(GA_FN_cuEventSynchronize *real, ga_event event) {
    struct ga_root *root = root_if_pending();
    ga_result result = real(event);
    return root ? synchronized(root, NULL, 0, result) : result;
}

// Describes all streams of a context. A green context has the serial number of the primary context,
// but synchronising it waits only for its own streams. Therefore a green context is described by
// its handle alone.
static struct ga_memory_at all_of(struct ga_root *root, ga_context handle) {
    struct ga_entry e;
    bool whole = ga_cuda_context_find(root, (uint64_t)(uintptr_t)handle, &e) &&
                 e.kind != GA_CUDA_CONTEXT_FROM_GREEN;
    return (struct ga_memory_at){
        .driver = &ga_cuda_stream_order, .handle = handle, .context = whole ? e.context : 0};
}

ga_result ga_cuda_sync_context(GA_FN_cuCtxSynchronize *real) {
    struct ga_root *root = root_if_pending();
    ga_context current = NULL;
    if (!root)
        return real();
    GA_REAL(cuCtxGetCurrent)(&current);
    struct ga_memory_at at = all_of(root, current);
    uint64_t turn = ga_memory_pending_turn(root);
    return synchronized(root, &at, turn, real());
}

ga_result ga_cuda_sync_context_v2(GA_FN_cuCtxSynchronize_v2 *real, ga_context context) {
    struct ga_root *root = root_if_pending();
    if (!root)
        return real(context);
    struct ga_memory_at at = all_of(root, context);
    uint64_t turn = ga_memory_pending_turn(root);
    return synchronized(root, &at, turn, real(context));
}
