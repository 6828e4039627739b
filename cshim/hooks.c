// SPDX-License-Identifier: Apache-2.0
// The wrappers: one function for each GA_HOOK row. Each is an ordinary function of
// some length, so that tools that patch a function's beginning can.
#include "hooks.h"

#include <errno.h>

#include "cuda_array.h"
#include "cuda_async.h"
#include "cuda_bound.h"
#include "cuda_context.h"
#include "cuda_graph.h"
#include "cuda_green.h"
#include "cuda_hold.h"
#include "cuda_host.h"
#include "cuda_import.h"
#include "cuda_memory.h"
#include "cuda_module.h"
#include "cuda_pool.h"
#include "cuda_primary.h"
#include "cuda_query.h"
#include "cuda_resolve.h"
#include "cuda_stream.h"
#include "cuda_vmm.h"
#include "driver.h"

// Reached by direct link, a wrapper exists even where the driver lacks the function: then the
// answer is CUDA_ERROR_NOT_FOUND. The driver's errno is the program's business; ours is not.
#define GA_HOOK(symbol, parameters, arguments, call)                                               \
    __attribute__((visibility("default"))) ga_result symbol parameters;                            \
    ga_result symbol parameters {                                                                  \
        int mode = ga_driver_meet();                                                               \
        GA_FN_##symbol *real = GA_REAL(symbol);                                                    \
        if (GA_UNLIKELY(real == NULL))                                                             \
            return GA_CUDA_NOT_FOUND;                                                              \
        if (ga_driver_passes(mode, __builtin_return_address(0)))                                   \
            return real arguments;                                                                 \
        int *error = &errno;                                                                       \
        int saved = *error;                                                                        \
        ga_result result = call;                                                                   \
        *error = saved;                                                                            \
        return result;                                                                             \
    }
#define GA_NEED(symbol, parameters)
#include "hooks.def"
#undef GA_HOOK
#undef GA_NEED

void *ga_hooks_wrapper(size_t row) {
    switch (row) {
#define GA_HOOK(symbol, parameters, arguments, call)                                               \
    case GA_ROW_##symbol:                                                                          \
        return (void *)symbol;
#define GA_NEED(symbol, parameters)
#include "hooks.def"
#undef GA_HOOK
#undef GA_NEED
    }
    return NULL;
}
