// SPDX-License-Identifier: Apache-2.0
// NVML as an interface: the wrappers, one function for each GA_HOOK row of hooks.def.
#include "nvml/hooks.h"

#include "hook/library.h"
#include "hook/row.h"
#include "nvml/nvml.h"

// This thread is in a wrapper: its stack there, or 0.
static __thread uint32_t inside __attribute__((tls_model("initial-exec")));

// All of its functions, or none: a wrapper needs more than its own.
static void *function_of_row(enum ga_nvml_row row) {
    return ga_library_contact(&ga_nvml_interface, NULL) ? atomic_load(&ga_nvml_functions[row])
                                                        : NULL;
}

// NVML reaches functions of its own through the global scope, where it finds ours: what it asks
// itself, it asks the device. By a jump it leaves no address of its own on the stack; but then
// this thread is inside of a wrapper.
static bool is_nvmls_own(const void *caller) {
    return (inside && !ga_os_left(inside, ga_os_stack())) ||
           ga_library_contains(&ga_nvml_interface, caller);
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
        inside = ga_os_stack() | 1;                                                                \
        ga_nvml_result result = GA_ROW_CALL(arguments, __VA_ARGS__);                               \
        inside = 0;                                                                                \
        return result;                                                                             \
    }
#define GA_NEED(symbol, parameters)
#include "nvml/hooks.def"
#undef GA_HOOK
#undef GA_NEED

#define ROWS "nvml/hooks.def"
#define ROW(symbol) GA_NVML_ROW_##symbol
#include "hook/rows.inc"

struct ga_interface ga_nvml_interface = {
    .file = "libnvidia-ml.so.1",
    .probe = "nvmlDeviceGetUUID",
    .prefix = "nvml",
    .names = names,
    .lengths = lengths,
    .functions = ga_nvml_functions,
    .wrapper = wrapper,
    .rows = GA_NVML_ROWS,
};
