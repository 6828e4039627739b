// SPDX-License-Identifier: Apache-2.0
// CUDA as an interface: meeting its driver, and the wrappers, one function for each GA_HOOK row.
// Each is an ordinary function of some length, so that tools that patch a function's beginning can.
#include "cuda/hooks.h"

#include "cuda/array.h"
#include "cuda/async.h"
#include "cuda/capture.h"
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/graph.h"
#include "cuda/green.h"
#include "cuda/host.h"
#include "cuda/import.h"
#include "cuda/limit.h"
#include "cuda/memory.h"
#include "cuda/pool.h"
#include "cuda/primary.h"
#include "cuda/query.h"
#include "cuda/stream.h"
#include "cuda/stream_order.h"
#include "cuda/teardown.h"
#include "cuda/thread_slot.h"
#include "cuda/vmm.h"
#include "hook/copies.h"
#include "hook/library.h"
#include "hook/loader.h"
#include "hook/row.h"
#include "memory/pending.h"

enum {
    NEW = 0,      // not met yet: its functions are not all known
    PLAIN = 1,    // what comes to a wrapper is the program's
    REENTERS = 2, // it may be the driver's own; or GPUARB_DISABLE is set, and nothing is looked at
};
static _Atomic int mode;   // NEW until the held copy is kept (interface.h), then that of this copy
static _Atomic int latest; // mode of the held copy, also before it is kept

static ga_cuda_device_meet meets;

// Is called when a copy became the held one: the functions of all rows are known. A driver that is
// not bound to itself calls functions of its own through the global scope, where it finds ours. As
// long as the program may unload this copy and load another one, mode stays NEW, so that each call
// asks which copy is held.
static void met(const struct ga_interface *driver, void *handle) {
    struct ga_loader_object object;
    bool plain = !ga_library_disabled() &&
                 ga_loader_object((void *)atomic_load(&driver->first), &object) && object.symbolic;
    atomic_store(&ga_driver_handle, handle);
    atomic_store(&ga_cuda_device_meets, meets);
    atomic_store(&ga_cuda_context_sweeps, ga_cuda_teardown_sweep);
    atomic_store(&latest, plain ? PLAIN : REENTERS);
    if (atomic_load(&driver->pinned))
        atomic_store(&mode, plain ? PLAIN : REENTERS);
}

// Is called for a context that is new to the thread: since there is one, the held driver works,
// whichever call has initialised it.
static bool meets(struct ga_root *root, ga_context context, uint32_t device, uint64_t epoch) {
    ga_library_keep(&ga_cuda_interface);
    return ga_cuda_thread_slot_meet(root, context, device, epoch);
}

// By a jump it leaves no address of its own: then a wrapper of ours is the caller.
static GA_NOINLINE bool lets_through(int now, const void *caller) {
    return ga_library_disabled() ||
           (now == REENTERS &&
            (ga_library_contains(&ga_cuda_interface, caller) || ga_loader_ours(caller)));
}

static GA_NOINLINE int contact(void) {
    ga_library_contact(&ga_cuda_interface, NULL);
    return atomic_load(&latest);
}

// A wrapper that was reached by direct link meets the driver here. From then on GA_REAL is what the
// driver has, of all rows: a wrapper needs more than its own.
static inline int meet(void) {
    int now = atomic_load_explicit(&mode, memory_order_acquire);
    return GA_UNLIKELY(now == NEW) ? contact() : now;
}

// Whether a wrapper that was called from there has nothing to do.
static inline bool passes(int now, const void *caller) {
    return GA_UNLIKELY(now != PLAIN) && lets_through(now, caller);
}

// The driver's own resolver has answered, and the pointer is translated. Nothing of the arguments
// is looked at before: a NULL that the driver does not accept must fail in it, as without us.
static ga_result resolved(ga_result result, const char *name, void **pfn) {
    if (result == GA_CUDA_SUCCESS && pfn && *pfn)
        *pfn = ga_library_translate(&ga_cuda_interface, *pfn, name);
    return result;
}

// The function of a row in the copy at a place; NULL: the copy has none.
#define GA_OWN(symbol, place)                                                                      \
    ((GA_FN_##symbol *)ga_copies_own(&ga_cuda_interface, place, GA_ROW_##symbol))

// Calls cuInit of the copy at a place. The first copy in which it succeeds is held.
static ga_result initialised(size_t place, unsigned int flags) {
    GA_FN_cuInit *real = GA_OWN(cuInit, place);
    ga_result result = real ? real(flags) : GA_CUDA_NOT_FOUND;
    GA_ROW_KEEPS_ERRNO;
    if (result == GA_CUDA_SUCCESS)
        ga_copies_works(&ga_cuda_interface, place);
    return result;
}

// What a row's function is where the versions of an entry point differ in their parameters alone:
// all that they take goes the way of cuda/allocation.h. c is the row's own.
#define GA_TAKES(allocation, open, settle)                                                         \
    ({                                                                                             \
        struct allocation c;                                                                       \
        (open) ? (settle) : GA_CUDA_OUT_OF_MEMORY;                                                 \
    })
// What the driver has made, as a number.
#define GA_MADE(result, at) ((result) == GA_CUDA_SUCCESS ? (uint64_t)(uintptr_t) * (at) : 0)
#define GA_ALLOCATES(real, opened, undo, address, ...)                                             \
    GA_TAKES(ga_allocation, opened, ({                                                             \
                 ga_result made = real(address, __VA_ARGS__);                                      \
                 ga_cuda_allocation_settle(&c, made, GA_MADE(made, address), undo);                \
             }))
#define GA_ALLOCATES_PITCHED(real, undo, address, pitch, width, height, element)                   \
    GA_TAKES(ga_allocation, ga_cuda_memory_open_pitched(&c, width, height), ({                     \
                 ga_result made = real(address, pitch, width, height, element);                    \
                 ga_cuda_memory_settle_pitched(&c, made, GA_MADE(made, address),                   \
                                               GA_MADE(made, pitch) * (height), undo);             \
             }))
#define GA_CREATES_STREAM(real, opened, stream, ...)                                               \
    GA_TAKES(ga_allocation, opened, ga_cuda_stream_created(&c, real(stream, __VA_ARGS__), stream))
#define GA_CREATES_CONTEXT(real, device, context, ...)                                             \
    GA_TAKES(ga_allocation, ga_cuda_context_ask(&c, device),                                       \
             ga_cuda_context_created(&c, real(context, __VA_ARGS__), context))
#define GA_ALLOCATES_HOST(real, bytes, at, ...)                                                    \
    GA_TAKES(ga_allocation, ga_cuda_host_open(&c, bytes),                                          \
             ga_cuda_host_settle(&c, real(at, __VA_ARGS__), at, GA_CUDA_HOST_ALLOCATED))
#define GA_REGISTERS_HOST(real, at, bytes, flags)                                                  \
    GA_TAKES(ga_allocation, ga_cuda_host_open(&c, bytes),                                          \
             ga_cuda_host_settle(&c, real(at, bytes, flags), &(at), GA_CUDA_HOST_REGISTERED))
#define GA_INSTANTIATES(real, graph, exec, ...)                                                    \
    GA_TAKES(ga_memory_graph_making, ga_cuda_graph_begin(&c, graph),                               \
             ga_cuda_graph_made(&c, real(exec, __VA_ARGS__), exec))
#define GA_UPDATES(real, graph, exec, ...)                                                         \
    GA_TAKES(ga_memory_graph_making, ga_cuda_graph_begin(&c, graph),                               \
             ga_cuda_graph_updated(&c, real(exec, __VA_ARGS__), exec))
#define GA_CREATES_ARRAY(real, shape, levels, space, array, ...)                                   \
    GA_TAKES(ga_allocation, ga_cuda_array_open(&c, shape, levels), ({                              \
                 ga_result made = real(array, __VA_ARGS__);                                        \
                 ga_cuda_array_created(&c, made, (struct ga_key){GA_MADE(made, array), space});    \
             }))

// The reverse.
#define GA_GIVES(real, give, given, handle)                                                        \
    ({                                                                                             \
        struct ga_allocation c;                                                                    \
        bool ours = (give);                                                                        \
        ga_result ended = real(handle);                                                            \
        if (ours)                                                                                  \
            given(&c, ended);                                                                      \
        ended;                                                                                     \
    })
#define GA_FREES(real, address)                                                                    \
    ({                                                                                             \
        struct ga_allocation c;                                                                    \
        enum ga_cuda_freed what = ga_cuda_memory_remove(&c, address);                              \
        ga_cuda_memory_freed(&c, what, real(address));                                             \
    })
#define GA_DESTROYS_ARRAY(real, space, array)                                                      \
    GA_GIVES(                                                                                      \
        real,                                                                                      \
        ga_cuda_allocation_remove_key(&c, (struct ga_key){(uint64_t)(uintptr_t)(array), space}),   \
        ga_cuda_allocation_freed, array)

// What there is. The driver answers first: its errors are the program's. The first versions have 32
// bits: what is more than they say is the most that they do, and the driver's answer no capacity.
#define GA_MOST_OF(at) ((__typeof__(*(at)))-1)
#define GA_CAPACITY(at) ((at) && GA_MOST_OF(at) == UINT64_MAX ? *(at) : UINT64_MAX)
#define GA_TELL(at, value)                                                                         \
    ((at) ? (void)(*(at) = (__typeof__(*(at)))ga_os_least(value, GA_MOST_OF(at))) : (void)0)
#define GA_TELLS_ROOM(real, room, total)                                                           \
    ({                                                                                             \
        struct ga_budget b;                                                                        \
        ga_result told = real(room, total);                                                        \
        if (told == GA_CUDA_SUCCESS && ga_cuda_query_current(GA_CAPACITY(total), &b)) {            \
            GA_TELL(room, b.room);                                                                 \
            GA_TELL(total, b.total);                                                               \
        }                                                                                          \
        told;                                                                                      \
    })
#define GA_TELLS_TOTAL(real, bytes, device)                                                        \
    ({                                                                                             \
        struct ga_budget b;                                                                        \
        ga_result told = real(bytes, device);                                                      \
        if (told == GA_CUDA_SUCCESS && (bytes) && ga_cuda_query(device, GA_CAPACITY(bytes), &b))   \
            GA_TELL(bytes, b.total);                                                               \
        told;                                                                                      \
    })

// The same where all is done around the driver's call.
// A wrapper stands for the resolver of place 0, whichever copy is held, so that it calls that one.
#define GA_RESOLVES(real, symbol, name, pfn, ...)                                                  \
    ({                                                                                             \
        GA_FN_##symbol *own = GA_OWN(symbol, 0);                                                   \
        resolved((own ? own : real)(name, pfn, __VA_ARGS__), name, pfn);                           \
    })
#define GA_IMPORTS_HANDLE(real, handle, ...) ga_cuda_vmm_imported(real(handle, __VA_ARGS__), handle)
#define GA_MEETS_POOL(real, location, type, pool, ...)                                             \
    ({                                                                                             \
        ga_result made = real(pool, __VA_ARGS__);                                                  \
        ga_cuda_pool_met(made, pool, location, type);                                              \
    })
#define GA_CHANGES_POOL(real, ...)                                                                 \
    ({                                                                                             \
        struct ga_memory_pools *changing = ga_memory_pool_change_begin(ga_root_get());             \
        ga_result changed = real(__VA_ARGS__);                                                     \
        ga_memory_pool_change_end(changing);                                                       \
        changed;                                                                                   \
    })
#define GA_SYNCHRONIZES_CONTEXT(real, ...) ga_cuda_sync_context(real)
#define GA_BEGINS_CAPTURE(real, ...)                                                               \
    (ga_cuda_stream_capture(), ga_cuda_capture_began(real(__VA_ARGS__)))
#define GA_OPENS_BLOCK(real, pool, address, ...)                                                   \
    ga_cuda_import_opened(real(address, __VA_ARGS__), address, pool)
#define GA_ENDS_CAPTURE(real, ...) ga_cuda_capture_ended(real(__VA_ARGS__))

// Reached by direct link, a wrapper exists even where the driver lacks the function: then the
// answer is CUDA_ERROR_NOT_FOUND.
#define GA_HOOK(symbol, class, bytes, parameters, arguments, ...)                                  \
    __attribute__((visibility("default"))) ga_result symbol parameters;                            \
    ga_result symbol parameters {                                                                  \
        int now = meet();                                                                          \
        GA_FN_##symbol *real = GA_REAL(symbol);                                                    \
        if (GA_UNLIKELY(real == NULL))                                                             \
            return GA_CUDA_NOT_FOUND;                                                              \
        if (passes(now, __builtin_return_address(0)))                                              \
            return real arguments;                                                                 \
        GA_ROW_KEEPS_ERRNO;                                                                        \
        return GA_ROW_CALL(arguments, __VA_ARGS__);                                                \
    }
#define GA_NEED(symbol, parameters)
#include "cuda/hooks.def"
#undef GA_HOOK
#undef GA_NEED

#define ROWS "cuda/hooks.def"
#define ROW(symbol) GA_ROW_##symbol
#include "hook/rows.inc"

// The wrappers that must know which copy is called: a set for each place.
#define OF_COPY(place)                                                                             \
    static ga_result init_##place(unsigned int flags) {                                            \
        return initialised(place, flags);                                                          \
    }                                                                                              \
    static ga_result resolve_##place(const char *name, void **pfn, int version, uint64_t flags) {  \
        GA_FN_cuGetProcAddress *real = GA_OWN(cuGetProcAddress, place);                            \
        return real ? resolved(real(name, pfn, version, flags), name, pfn) : GA_CUDA_NOT_FOUND;    \
    }                                                                                              \
    static ga_result resolve_v2_##place(const char *name, void **pfn, int version, uint64_t flags, \
                                        int *status) {                                             \
        GA_FN_cuGetProcAddress_v2 *real = GA_OWN(cuGetProcAddress_v2, place);                      \
        return real ? resolved(real(name, pfn, version, flags, status), name, pfn)                 \
                    : GA_CUDA_NOT_FOUND;                                                           \
    }
OF_COPY(0)
OF_COPY(1)
OF_COPY(2)
OF_COPY(3)
_Static_assert(GA_COPIES == 4, "OF_COPY is there for each place");

#define AT(place, function)                                                                        \
    ((place) == 0   ? (void *)function##_0                                                         \
     : (place) == 1 ? (void *)function##_1                                                         \
     : (place) == 2 ? (void *)function##_2                                                         \
                    : (void *)function##_3)
static void *of_copy(size_t row, size_t place) {
    switch (row) {
    case GA_ROW_cuInit:
        return AT(place, init);
    case GA_ROW_cuGetProcAddress:
        return place == 0 ? (void *)cuGetProcAddress : AT(place, resolve);
    case GA_ROW_cuGetProcAddress_v2:
        return place == 0 ? (void *)cuGetProcAddress_v2 : AT(place, resolve_v2);
    }
    return NULL;
}

struct ga_interface ga_cuda_interface = {
    .file = "libcuda.so.1",
    .probe = "cuInit",
    .prefix = "cu",
    .names = names,
    .lengths = lengths,
    .functions = ga_driver_functions,
    .own = own,
    .wrapper = wrapper,
    .of_copy = of_copy,
    .rows = GA_ROWS,
    .met = met,
    .reap = ga_memory_pending_reap,
};
