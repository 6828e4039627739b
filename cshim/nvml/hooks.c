// SPDX-License-Identifier: Apache-2.0
// The wrappers of NVML's entry points: one exported function for each GA_HOOK row of hooks.def, and
// the struct ga_interface through which hook/library.c finds them. The answers are computed in
// nvml.c.
#include "nvml/hooks.h"

#include "hook/copies.h"
#include "hook/library.h"
#include "hook/row.h"
#include "nvml/nvml.h"

// Set while this thread is in a wrapper.
static __thread bool inside __attribute__((tls_model("initial-exec")));

// Returns NVML's function of a row, after the functions of all rows were found: a wrapper needs
// more functions than its own. NULL: NVML lacks the function.
static void *function_of_row(enum ga_nvml_row row) {
    return ga_library_find(&ga_nvml_interface, NULL) ? atomic_load(&ga_nvml_functions[row]) : NULL;
}

// Reports whether NVML itself has called the wrapper. NVML finds the wrappers in the global scope
// when it calls its own functions; such calls must read the device. If NVML jumps to a wrapper, its
// address is not on the stack, but then this thread is inside another wrapper.
static bool is_nvmls_own(const void *caller) {
    return inside || ga_library_contains(&ga_nvml_interface, caller);
}

#define GA_HOOK(symbol, class, bytes, parameters, arguments, ...)                                  \
    __attribute__((visibility("default"))) ga_nvml_result symbol parameters;                       \
    ga_nvml_result symbol parameters {                                                             \
        GA_FN_##symbol *real = (GA_FN_##symbol *)function_of_row(GA_NVML_ROW_##symbol);            \
        if (real == NULL)                                                                          \
            return GA_NVML_FUNCTION_NOT_FOUND;                                                     \
        if (ga_library_disabled() || is_nvmls_own(__builtin_return_address(0)))                    \
            return real arguments;                                                                 \
        GA_ROW_KEEPS_ERRNO;                                                                        \
        inside = true;                                                                             \
        ga_nvml_result result = GA_ROW_CALL(arguments, __VA_ARGS__);                               \
        inside = false;                                                                            \
        if (result == GA_NVML_SUCCESS)                                                             \
            ga_library_pin_held(&ga_nvml_interface);                                               \
        return result;                                                                             \
    }
#define GA_NEED(symbol, parameters)
#include "nvml/hooks.def"
#undef GA_HOOK
#undef GA_NEED

#define ROWS "nvml/hooks.def"
#define ROW(symbol) GA_NVML_ROW_##symbol
#include "hook/rows.inc"

// Initialises the copy of NVML at a place. The first copy in which that succeeds is held.
#define INITIALISES(symbol, place, parameters, ...)                                                \
    static ga_nvml_result symbol##_##place parameters {                                            \
        GA_FN_##symbol *real =                                                                     \
            (GA_FN_##symbol *)ga_copies_own(&ga_nvml_interface, place, GA_NVML_ROW_##symbol);      \
        ga_nvml_result result = real ? real(__VA_ARGS__) : GA_NVML_FUNCTION_NOT_FOUND;             \
        GA_ROW_KEEPS_ERRNO;                                                                        \
        if (result == GA_NVML_SUCCESS)                                                             \
            ga_copies_works(&ga_nvml_interface, place);                                            \
        return result;                                                                             \
    }
#define OF_COPY(place)                                                                             \
    INITIALISES(nvmlInit, place, (void))                                                           \
    INITIALISES(nvmlInit_v2, place, (void))                                                        \
    INITIALISES(nvmlInitWithFlags, place, (unsigned int flags), flags)
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
    case GA_NVML_ROW_nvmlInit:
        return AT(place, nvmlInit);
    case GA_NVML_ROW_nvmlInit_v2:
        return AT(place, nvmlInit_v2);
    case GA_NVML_ROW_nvmlInitWithFlags:
        return AT(place, nvmlInitWithFlags);
    }
    return NULL;
}

struct ga_interface ga_nvml_interface = {
    .file = "libnvidia-ml.so.1",
    .probe = "nvmlDeviceGetUUID",
    .prefix = "nvml",
    .names = names,
    .lengths = lengths,
    .functions = ga_nvml_functions,
    .own = own,
    .wrapper = wrapper,
    .of_copy = of_copy,
    .rows = GA_NVML_ROWS,
};
