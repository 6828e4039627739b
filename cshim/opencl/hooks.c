// SPDX-License-Identifier: Apache-2.0
// The wrappers of OpenCL's entry points: for each GA_HOOK row of hooks.def an exported function,
// and a function of the layer (layer.h). They wrap the functions of the loader (libOpenCL.so.1, the
// ICD loader), which all programs call. The loader calls the drivers through tables.
#include "opencl/hooks.h"

#include "hook/copies.h"
#include "hook/library.h"
#include "hook/row.h"
#include "opencl/call.h"
#include "opencl/context.h"
#include "opencl/image.h"
#include "opencl/memory.h"
#include "opencl/query.h"
#include "opencl/svm.h"

static inline void *loader_function(enum ga_opencl_row row) {
    return atomic_load_explicit(&ga_opencl_functions[row], memory_order_relaxed);
}

// Returns the loader's function of a row. First finds the functions of all rows, because a wrapper
// may call other functions than the one that it replaces. NULL: the loader lacks the function.
static void *function_of_row(enum ga_opencl_row row) {
    return ga_library_find(&ga_opencl_interface, NULL) ? loader_function(row) : NULL;
}

// Returns the function of a row that the layer must call. The loader has passed it to the layer.
static void *next_function(enum ga_opencl_row row) {
    ga_library_find(&ga_opencl_interface, NULL);
    return atomic_load(&ga_opencl_next[row]);
}

// Reports whether a call of a wrapper comes from the loader or a driver, and must go on unchanged.
// Drivers and the loader find the wrappers in the global scope when they call these functions by
// name.
//
// If the call allocates (takes) during a call of the program, it is a part of that call, which has
// been counted. A callback of the program is the program's call: its code lies in the same library
// as the call. Calls that free objects are always handled.
static bool is_driver_call(enum ga_opencl_row row, bool takes, const void *caller) {
    bool own = (takes && ga_opencl_call_is_active() &&
                !ga_library_same_object(ga_opencl_call.caller, caller)) ||
               ga_library_contains(&ga_opencl_interface, caller);
    if (own)
        ga_opencl_call.forwarded_row = row + 1;
    return own;
}

// Reports whether a call that reaches the layer has been counted. Either a wrapper has seen it, or
// a driver makes it during a call that came through the layer.
static bool is_counted(enum ga_opencl_row row, bool takes, const void *caller) {
    bool seen = ga_opencl_call.forwarded_row == row + 1;
    if (seen)
        ga_opencl_call.forwarded_row = 0;
    return seen || (takes && ga_opencl_call_is_active() && ga_opencl_call.layer &&
                    !ga_library_same_object(ga_opencl_call.caller, caller));
}

// Returns the wrapper for a function that the program has looked up, if there is one, or else the
// function. The driver returns its own function for a name that the loader exports too. The wrapper
// can replace it, because the loader's function finds the driver by the handle.
static ga_cl_address wrapped(ga_cl_address found, const char *name) {
    int row = found && name ? ga_library_row(&ga_opencl_interface, name) : -1;
    void *wrapper = row < 0 ? NULL : ga_opencl_interface.wrapper((size_t)row);
    return wrapper && atomic_load(&ga_opencl_functions[row]) ? wrapper : found;
}

static ga_cl_address ga_opencl_function_address(GA_FN_clGetExtensionFunctionAddress *real,
                                                const char *name) {
    return wrapped(real(name), name);
}

static ga_cl_address
ga_opencl_function_address_for(GA_FN_clGetExtensionFunctionAddressForPlatform *real,
                               ga_cl_platform platform, const char *name) {
    return wrapped(real(platform, name), name);
}

// Notes that the held loader works, because a context was made, whichever call found the platforms.
static ga_cl_context note_works(ga_cl_context made) {
    if (made)
        ga_library_pin_held(&ga_opencl_interface);
    return made;
}

// Returns the result of an object that was not admitted: nothing is acquired.
static void *denied(ga_cl_int *status, struct ga_root **root, ga_cl_int why) {
    *root = NULL;
    return ga_opencl_refused(status, why);
}

// The code of wrappers, one macro for all functions (rows of hooks.def) that differ only in their
// parameters. c is a variable of the macro; status is a parameter of the wrapper.
//
// GA_CREATES evaluates `asked`, which asks for admission. If that is granted, it evaluates `made`,
// which calls the driver and accounts for the result. It starts again if the driver had no memory
// for what was admitted (ga_admit_again). Meanwhile status points to a variable of the macro,
// because the program may pass NULL.
#define GA_CREATES(request, full, why, asked, made)                                                \
    ({                                                                                             \
        struct request c;                                                                          \
        void *object;                                                                              \
        ga_cl_int own = GA_CL_SUCCESS;                                                             \
        ga_cl_int *programs = status;                                                              \
        status = &own;                                                                             \
        full = 0;                                                                                  \
        do                                                                                         \
            object = (asked) ? (made) : denied(&own, &c.root, full ? own : (why));                 \
        while (ga_admit_again(c.root, &full, !object && ga_opencl_lacks(own)));                    \
        if (programs)                                                                              \
            *programs = own;                                                                       \
        object;                                                                                    \
    })
#define GA_CREATES_CONTEXT(real, asked, ...)                                                       \
    GA_CREATES(ga_opencl_context_request, c.slots.full, GA_CL_OUT_OF_RESOURCES, asked,             \
               ga_opencl_context_made(&c, note_works(real(__VA_ARGS__)), status))
#define GA_CREATES_MEMORY(real, opened, ...)                                                       \
    GA_CREATES(ga_allocation, c.full, GA_CL_MEM_OBJECT_ALLOCATION_FAILURE, opened,                 \
               ga_opencl_memory_made(&c, real(__VA_ARGS__), status))
// A release. The bytes of the objects that end in it are released.
#define GA_RELEASES(real, ...) real(__VA_ARGS__)

// Tell by a row's kind of bytes whether the call allocates something (takes).
#define GA_WRAPS_answer(...) GA_WRAPS(true, __VA_ARGS__)
#define GA_WRAPS_argument(...) GA_WRAPS(true, __VA_ARGS__)
#define GA_WRAPS_descriptor(...) GA_WRAPS(true, __VA_ARGS__)
#define GA_WRAPS_one(...) GA_WRAPS(true, __VA_ARGS__)
#define GA_WRAPS_entry(...) GA_WRAPS(false, __VA_ARGS__)
#define GA_WRAPS_reference(...) GA_WRAPS(false, __VA_ARGS__)

// Results for functions that the loader lacks.
#define GA_MISSING_ga_cl_int GA_CL_INVALID_OPERATION
#define GA_MISSING_ga_cl_context NULL
#define GA_MISSING_ga_cl_mem NULL
#define GA_MISSING_ga_cl_object NULL
#define GA_MISSING_ga_cl_address NULL
#define GA_MISSING_void

#define GA_WRAPPER(symbol, function, bypasses, layer, takes, arguments, returns, ...)              \
    {                                                                                              \
        const enum ga_opencl_row number = GA_OPENCL_ROW_##symbol;                                  \
        GA_FN_##symbol *real = (GA_FN_##symbol *)function(number);                                 \
        if (real == NULL)                                                                          \
            return GA_MISSING_##returns;                                                           \
        if (ga_library_disabled() || bypasses(number, takes, __builtin_return_address(0)))         \
            return real arguments;                                                                 \
        GA_ROW_KEEPS_ERRNO;                                                                        \
        __attribute__((unused, cleanup(ga_opencl_call_end))) struct ga_opencl_call outer =         \
            ga_opencl_call_begin(__builtin_return_address(0), layer, layer ? 0 : number + 1);      \
        return GA_ROW_CALL(arguments, __VA_ARGS__);                                                \
    }
// The layer's function is called only after the loader has passed the next function.
#define GA_WRAPS(takes, symbol, returns, parameters, arguments, ...)                               \
    returns symbol parameters GA_WRAPPER(symbol, function_of_row, is_driver_call, false, takes,    \
                                         arguments, returns,                                       \
                                         __VA_ARGS__) static returns layer_##symbol parameters     \
    GA_WRAPPER(symbol, next_function, is_counted, true, takes, arguments, returns, __VA_ARGS__)
#define GA_HOOK(symbol, place, class, bytes, returns, parameters, arguments, ...)                  \
    __attribute__((visibility("default"))) returns symbol parameters;                              \
    GA_WRAPS_##bytes(symbol, returns, parameters, arguments, __VA_ARGS__)
#define GA_NEED(symbol, ...)
#include "opencl/hooks.def"
#undef GA_HOOK
#undef GA_NEED

#define ROWS "opencl/hooks.def"
#define ROW(symbol) GA_OPENCL_ROW_##symbol
#include "hook/rows.inc"

void *ga_opencl_layer_wrapper(size_t row) {
    switch (row) {
#define GA_HOOK(symbol, ...)                                                                       \
    case GA_OPENCL_ROW_##symbol:                                                                   \
        return (void *)layer_##symbol;
#define GA_NEED(symbol, ...)
#include "opencl/hooks.def"
#undef GA_HOOK
#undef GA_NEED
    }
    return NULL;
}

// Calls clGetPlatformIDs of the copy of the OpenCL loader at a place. A loader works if it finds a
// platform. Each OpenCL object points to its driver's functions, so any loader can serve the
// objects of all loaders.
static ga_cl_int platforms(size_t place, ga_cl_uint room, ga_cl_platform *list, ga_cl_uint *count) {
    GA_FN_clGetPlatformIDs *real = (GA_FN_clGetPlatformIDs *)ga_copies_own(
        &ga_opencl_interface, place, GA_OPENCL_ROW_clGetPlatformIDs);
    ga_cl_int result = real ? real(room, list, count) : GA_CL_INVALID_OPERATION;
    GA_ROW_KEEPS_ERRNO;
    if (result == GA_CL_SUCCESS && (!count || *count > 0))
        ga_copies_works(&ga_opencl_interface, place);
    return result;
}

#define OF_COPY(place)                                                                             \
    static ga_cl_int platforms_##place(ga_cl_uint room, ga_cl_platform *list, ga_cl_uint *count) { \
        return platforms(place, room, list, count);                                                \
    }
OF_COPY(0)
OF_COPY(1)
OF_COPY(2)
OF_COPY(3)
_Static_assert(GA_COPIES == 4, "OF_COPY is there for each place");

static void *of_copy(size_t row, size_t place) {
    if (row != GA_OPENCL_ROW_clGetPlatformIDs)
        return NULL;
    return place == 0   ? (void *)platforms_0
           : place == 1 ? (void *)platforms_1
           : place == 2 ? (void *)platforms_2
                        : (void *)platforms_3;
}

struct ga_interface ga_opencl_interface = {
    .file = "libOpenCL.so.1",
    .probe = "clGetPlatformIDs",
    .prefix = "cl",
    .names = names,
    .lengths = lengths,
    .functions = ga_opencl_functions,
    .own = own,
    .wrapper = wrapper,
    .of_copy = of_copy,
    .rows = GA_OPENCL_ROWS,
    .shared = true,
};
