// SPDX-License-Identifier: Apache-2.0
// The wrappers of CUDA's entry points: one exported function for each GA_HOOK row of hooks.def, and
// the struct ga_interface through which hook/library.c finds them. The rows' macros here join the
// steps before and after the driver's call; the steps are in the other files of cshim/cuda.
//
// Each wrapper is an ordinary function of some length, so that tools that patch the first bytes of
// a function work.
#include "cuda/hooks.h"

#include "cuda/allocators.h"
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
    MODE_UNKNOWN = 0,   // the driver's functions are not all known yet
    MODE_PROGRAM = 1,   // every call of a wrapper is the program's
    MODE_REENTRANT = 2, // a call may come from the driver itself; or GPUARB_DISABLE is set
};
static _Atomic int
    mode; // MODE_UNKNOWN until the held copy of the driver is final (interface.h), then driver_mode
static _Atomic int driver_mode; // mode of the held copy, also before it is final

static ga_cuda_device_first_use first_use;

// Is called when a copy of the driver became the held copy: then the functions of all rows are
// known. A driver that was not linked with -Bsymbolic calls its own functions through the global
// scope, where it finds the wrappers. As long as the program may unload this copy and load another,
// mode stays MODE_UNKNOWN, so that each call asks which copy is held.
static void driver_found(const struct ga_interface *driver, void *handle) {
    struct ga_loader_object object;
    bool plain = !ga_library_disabled() &&
                 ga_loader_object((void *)atomic_load(&driver->first), &object) && object.symbolic;
    atomic_store(&ga_driver_handle, handle);
    atomic_store(&ga_cuda_device_first_use_function, first_use);
    atomic_store(&ga_cuda_context_sweep_function, ga_cuda_teardown_sweep);
    atomic_store(&driver_mode, plain ? MODE_PROGRAM : MODE_REENTRANT);
    if (atomic_load(&driver->pinned))
        atomic_store(&mode, plain ? MODE_PROGRAM : MODE_REENTRANT);
}

// Is called for a context that is new to the thread. Because a context exists, the held driver
// works, whichever call has initialised it: the copy becomes final.
static bool first_use(struct ga_root *root, ga_context context, uint32_t device, uint64_t epoch) {
    ga_library_pin_held(&ga_cuda_interface);
    return ga_cuda_thread_slot_first_use(root, context, device, epoch);
}

// Reports whether a call goes to the driver unchanged. If the driver jumps to a wrapper instead of
// calling it, the caller's address lies in another wrapper.
static GA_NOINLINE bool is_bypassed_slow(int now, const void *caller) {
    return ga_library_disabled() ||
           (now == MODE_REENTRANT &&
            (ga_library_contains(&ga_cuda_interface, caller) || ga_loader_is_own(caller)));
}

static GA_NOINLINE int find_driver(void) {
    ga_library_find(&ga_cuda_interface, NULL);
    return atomic_load(&driver_mode);
}

// Returns the mode. At the first call, finds the driver with the functions of all rows, because a
// wrapper may call other driver functions than the one that it replaces.
static inline int current_mode(void) {
    int now = atomic_load_explicit(&mode, memory_order_acquire);
    return GA_UNLIKELY(now == MODE_UNKNOWN) ? find_driver() : now;
}

// Reports whether a wrapper must only call the driver. caller: the wrapper's return address.
static inline bool is_bypassed(int now, const void *caller) {
    return GA_UNLIKELY(now != MODE_PROGRAM) && is_bypassed_slow(now, caller);
}

// Translates the pointer that the driver's resolver has returned to the wrapper. The arguments are
// used only after the driver has succeeded: a NULL that the driver does not accept must fail in the
// driver.
static ga_result translate_resolved(ga_result result, const char *name, void **pfn) {
    if (result == GA_CUDA_SUCCESS && pfn && *pfn)
        *pfn = ga_library_translate(&ga_cuda_interface, *pfn, name);
    return result;
}

// Returns the function of a row in the copy at a place; NULL: the copy lacks it.
#define GA_COPY_FUNCTION(symbol, place)                                                            \
    ((GA_FN_##symbol *)ga_copies_own(&ga_cuda_interface, place, GA_ROW_##symbol))

// Calls cuInit of the copy at a place. The first copy in which it succeeds is held.
static ga_result init_copy(size_t place, unsigned int flags) {
    GA_FN_cuInit *real = GA_COPY_FUNCTION(cuInit, place);
    ga_result result = real ? real(flags) : GA_CUDA_NOT_FOUND;
    GA_ROW_KEEPS_ERRNO;
    if (result == GA_CUDA_SUCCESS)
        ga_copies_works(&ga_cuda_interface, place);
    return result;
}

// The code of wrappers, one macro for all functions (rows of hooks.def) that differ only in their
// parameters. GA_ADMITS evaluates `open`, which asks for admission. If that is granted, it
// evaluates `settle`, which calls the driver and accounts for the result. Both use the variable c,
// a struct of type `allocation`.
#define GA_ADMITS(allocation, open, settle)                                                        \
    ({                                                                                             \
        struct allocation c;                                                                       \
        (open) ? (settle) : GA_CUDA_OUT_OF_MEMORY;                                                 \
    })
// The handle or address that the driver has made, as a number; 0: the driver failed.
#define GA_MADE(result, at) ((result) == GA_CUDA_SUCCESS ? (uint64_t)(uintptr_t) * (at) : 0)
// GA_ADMITS for what takes device memory. The steps start again if the driver has no memory for
// what was admitted. `call` calls the driver; its result is the variable made, and `settle`
// accounts for it.
#define GA_ADMITS_MEMORY(open, call, settle)                                                       \
    ({                                                                                             \
        struct ga_allocation c;                                                                    \
        ga_result made = GA_CUDA_OUT_OF_MEMORY;                                                    \
        ga_result settled;                                                                         \
        c.full = 0;                                                                                \
        do {                                                                                       \
            settled = GA_CUDA_OUT_OF_MEMORY;                                                       \
            if (!(open))                                                                           \
                break;                                                                             \
            made = (call);                                                                         \
            settled = (settle);                                                                    \
        } while (ga_admit_again(c.root, &c.full, made == GA_CUDA_OUT_OF_MEMORY));                  \
        settled;                                                                                   \
    })
#define GA_ALLOCATES(real, opened, undo, address, ...)                                             \
    GA_ADMITS_MEMORY(opened, real(address, __VA_ARGS__),                                           \
                     ga_cuda_allocation_settle(&c, made, GA_MADE(made, address), undo))
#define GA_ALLOCATES_PITCHED(real, undo, address, pitch, width, height, element)                   \
    GA_ADMITS_MEMORY(ga_cuda_memory_open_pitched(&c, width, height),                               \
                     real(address, pitch, width, height, element),                                 \
                     ga_cuda_memory_settle_pitched(&c, made, GA_MADE(made, address),               \
                                                   GA_MADE(made, pitch) * (height), undo))
#define GA_CREATES_STREAM(real, opened, stream, ...)                                               \
    GA_ADMITS(ga_allocation, opened, ga_cuda_stream_created(&c, real(stream, __VA_ARGS__), stream))
#define GA_CREATES_CONTEXT(real, device, context, ...)                                             \
    GA_ADMITS_MEMORY(ga_cuda_context_ask(&c, device), real(context, __VA_ARGS__),                  \
                     ga_cuda_context_created(&c, made, context))
#define GA_ALLOCATES_HOST(real, bytes, at, ...)                                                    \
    GA_ADMITS(ga_allocation, ga_cuda_host_open(&c, bytes),                                         \
              ga_cuda_host_settle(&c, real(at, __VA_ARGS__), at, GA_CUDA_HOST_ALLOCATED))
#define GA_REGISTERS_HOST(real, at, bytes, flags)                                                  \
    GA_ADMITS(ga_allocation, ga_cuda_host_open(&c, bytes),                                         \
              ga_cuda_host_settle(&c, real(at, bytes, flags), &(at), GA_CUDA_HOST_REGISTERED))
#define GA_INSTANTIATES(real, graph, exec, ...)                                                    \
    GA_ADMITS(ga_memory_graph_making, ga_cuda_graph_begin(&c, graph),                              \
              ga_cuda_graph_made(&c, real(exec, __VA_ARGS__), exec))
#define GA_UPDATES(real, graph, exec, ...)                                                         \
    GA_ADMITS(ga_memory_graph_making, ga_cuda_graph_begin(&c, graph),                              \
              ga_cuda_graph_updated(&c, real(exec, __VA_ARGS__), exec))
#define GA_CREATES_ARRAY(real, shape, levels, space, array, ...)                                   \
    GA_ADMITS_MEMORY(                                                                              \
        ga_cuda_array_open(&c, shape, levels), real(array, __VA_ARGS__),                           \
        ga_cuda_array_created(&c, made, (struct ga_key){GA_MADE(made, array), space}))

// Ends an object: removes its entry, calls the driver, and passes the driver's result to `freed` if
// there was an entry.
#define GA_REMOVES(real, remove, freed, handle)                                                    \
    ({                                                                                             \
        struct ga_allocation c;                                                                    \
        bool ours = (remove);                                                                      \
        ga_result ended = real(handle);                                                            \
        if (ours)                                                                                  \
            freed(&c, ended);                                                                      \
        ended;                                                                                     \
    })
#define GA_FREES(real, address)                                                                    \
    ({                                                                                             \
        struct ga_allocation c;                                                                    \
        enum ga_cuda_freed what = ga_cuda_memory_remove(&c, address);                              \
        ga_cuda_memory_freed(&c, what, real(address));                                             \
    })
#define GA_DESTROYS_ARRAY(real, space, array)                                                      \
    GA_REMOVES(                                                                                    \
        real,                                                                                      \
        ga_cuda_allocation_remove_key(&c, (struct ga_key){(uint64_t)(uintptr_t)(array), space}),   \
        ga_cuda_allocation_freed, array)

// The memory sizes that a program asks for. The driver answers first, and its errors are returned.
// The first versions have 32-bit results: larger values become the largest that fits, and the
// driver's answer is not used as the capacity.
#define GA_LARGEST(at) ((__typeof__(*(at)))-1)
#define GA_CAPACITY(at) ((at) && GA_LARGEST(at) == UINT64_MAX ? *(at) : UINT64_MAX)
#define GA_REPORT(at, value)                                                                       \
    ((at) ? (void)(*(at) = (__typeof__(*(at)))ga_os_least(value, GA_LARGEST(at))) : (void)0)
#define GA_REPORTS_FREE(real, room, total)                                                         \
    ({                                                                                             \
        struct ga_budget b;                                                                        \
        ga_result answered = real(room, total);                                                    \
        if (answered == GA_CUDA_SUCCESS && ga_cuda_query_current(GA_CAPACITY(total), &b)) {        \
            GA_REPORT(room, b.room);                                                               \
            GA_REPORT(total, b.total);                                                             \
        }                                                                                          \
        answered;                                                                                  \
    })
#define GA_REPORTS_TOTAL(real, bytes, device)                                                      \
    ({                                                                                             \
        struct ga_budget b;                                                                        \
        ga_result answered = real(bytes, device);                                                  \
        if (answered == GA_CUDA_SUCCESS && (bytes) &&                                              \
            ga_cuda_query(device, GA_CAPACITY(bytes), &b))                                         \
            GA_REPORT(bytes, b.total);                                                             \
        answered;                                                                                  \
    })

// Rows whose work surrounds the driver's call. A resolver's wrapper stands for the resolver at
// place 0, whichever copy is held, and calls that one.
#define GA_RESOLVES(real, symbol, name, pfn, ...)                                                  \
    ({                                                                                             \
        GA_FN_##symbol *own = GA_COPY_FUNCTION(symbol, 0);                                         \
        translate_resolved((own ? own : real)(name, pfn, __VA_ARGS__), name, pfn);                 \
    })
#define GA_IMPORTS_HANDLE(real, handle, ...) ga_cuda_vmm_imported(real(handle, __VA_ARGS__), handle)
#define GA_RECORDS_POOL(real, location, type, pool, ...)                                           \
    ({                                                                                             \
        ga_result made = real(pool, __VA_ARGS__);                                                  \
        ga_cuda_pool_record(made, pool, location, type);                                           \
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

// A wrapper that the program is linked with exists even if the driver lacks the function. Then the
// wrapper returns CUDA_ERROR_NOT_FOUND.
#define GA_HOOK(symbol, class, bytes, parameters, arguments, ...)                                  \
    __attribute__((visibility("default"))) ga_result symbol parameters;                            \
    ga_result symbol parameters {                                                                  \
        int now = current_mode();                                                                  \
        GA_FN_##symbol *real = GA_REAL(symbol);                                                    \
        if (GA_UNLIKELY(real == NULL))                                                             \
            return GA_CUDA_NOT_FOUND;                                                              \
        if (is_bypassed(now, __builtin_return_address(0)))                                         \
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

// The wrappers that must know which copy of the driver is called: one set for each place.
#define OF_COPY(place)                                                                             \
    static ga_result init_##place(unsigned int flags) {                                            \
        return init_copy(place, flags);                                                            \
    }                                                                                              \
    static ga_result resolve_##place(const char *name, void **pfn, int version, uint64_t flags) {  \
        GA_FN_cuGetProcAddress *real = GA_COPY_FUNCTION(cuGetProcAddress, place);                  \
        return real ? translate_resolved(real(name, pfn, version, flags), name, pfn)               \
                    : GA_CUDA_NOT_FOUND;                                                           \
    }                                                                                              \
    static ga_result resolve_v2_##place(const char *name, void **pfn, int version, uint64_t flags, \
                                        int *status) {                                             \
        GA_FN_cuGetProcAddress_v2 *real = GA_COPY_FUNCTION(cuGetProcAddress_v2, place);            \
        return real ? translate_resolved(real(name, pfn, version, flags, status), name, pfn)       \
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
    .on_held = driver_found,
    .reap = ga_memory_pending_reap,
    .keeps_freed = ga_allocators_loaded,
};
