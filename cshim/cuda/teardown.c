// SPDX-License-Identifier: Apache-2.0
// Ends contexts, and sweeps the tables (teardown.h).
#include "cuda/teardown.h"

#include "core/admit.h"
#include "core/import.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/host.h"
#include "cuda/state.h"
#include "cuda/stream.h"
#include "cuda/thread_slot.h"
#include "memory/pending.h"

// ga_entry.bytes of a context: the number of the thread that made it, plus ATTACHED for each use
// that cuCtxAttach added.
#define ATTACHED (1ull << 32)

static uint64_t key_of(ga_context context) {
    return (uint64_t)(uintptr_t)context;
}

#define ASKING_MS 5000

bool ga_cuda_teardown_begin(struct ga_root *root) {
    return ga_mutex_lock(&ga_memory_of(root)->asking, ASKING_MS);
}

void ga_cuda_teardown_finish(struct ga_root *root, bool begun) {
    if (begun)
        ga_mutex_unlock(&ga_memory_of(root)->asking);
}

void ga_cuda_teardown_sweep(struct ga_root *root, uint64_t serial) {
    ga_admit_sweep(root, serial, 1);
    ga_memory_pending_sweep(root, serial);
    ga_cuda_host_sweep(root, serial);
    ga_import_sweep(root, serial);
    ga_cuda_stream_sweep(root, serial);
}

// Calls a driver function that ends a context, and sweeps what lived in it.
static ga_result end(struct ga_root *root, ga_result (*real)(ga_context), ga_context context) {
    struct ga_entry entry;
    // Finds the serial number before the driver may give the handle to another context.
    bool known = ga_cuda_context_find(root, key_of(context), &entry) &&
                 entry.kind != GA_CUDA_CONTEXT_FROM_GREEN;
    bool begun = ga_cuda_teardown_begin(root);
    ga_result result = real(context);
    if (result == GA_CUDA_SUCCESS)
        ga_cuda_context_end(root, known ? entry.context : 0);
    ga_cuda_teardown_finish(root, begun);
    ga_cuda_thread_slot_release_unused(root);
    return result;
}

ga_result ga_cuda_teardown_destroy(GA_FN_cuCtxDestroy_v2 *real, ga_context context) {
    struct ga_root *root = context ? ga_root_get() : NULL;
    return root ? end(root, real, context) : real(context);
}

// Adds or (more false) subtracts a use by cuCtxAttach. False: the context is not in the table, or
// has no such use left.
static bool add_use(struct ga_root *root, ga_context context, bool more) {
    struct ga_entry entry;
    struct ga_entry old;
    ga_self_lock(&ga_cuda(root)->contexts_lock);
    bool can = ga_table_find(&ga_cuda(root)->contexts, key_of(context), &entry) &&
               (more || entry.bytes >= ATTACHED);
    if (can) {
        entry.bytes += more ? ATTACHED : 0 - ATTACHED;
        ga_table_put(&ga_cuda(root)->contexts, &entry, &old);
    }
    ga_self_unlock(&ga_cuda(root)->contexts_lock);
    return can;
}

ga_result ga_cuda_teardown_attach(GA_FN_cuCtxAttach *real, ga_context *context,
                                  unsigned int flags) {
    ga_result result = real(context, flags);
    uint64_t serial;
    struct ga_root *root = result == GA_CUDA_SUCCESS ? ga_root_get() : NULL;
    if (root && ga_cuda_device_current(root, &serial) >= 0)
        add_use(root, *context, true);
    return result;
}

// The last detach destroys the context.
ga_result ga_cuda_teardown_detach(GA_FN_cuCtxDetach *real, ga_context context) {
    struct ga_root *root = context ? ga_root_get() : NULL;
    if (!root)
        return real(context);
    if (!add_use(root, context, false))
        return end(root, real, context);
    ga_result result = real(context);
    if (result != GA_CUDA_SUCCESS)
        add_use(root, context, true);
    return result;
}
