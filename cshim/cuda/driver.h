// SPDX-License-Identifier: Apache-2.0
// The functions of the real CUDA driver, and macros to call them. All files of cshim/cuda use it;
// hook/library.c finds the functions.
#ifndef GA_DRIVER_H
#define GA_DRIVER_H

#include "core/os.h"
#include "cuda/cuda.h"

// One number for each row of hooks.def.
enum ga_row {
#define GA_HOOK(symbol, class, bytes, parameters, arguments, ...) GA_ROW_##symbol,
#define GA_NEED(symbol, parameters) GA_ROW_##symbol,
#include "cuda/hooks.def"
#undef GA_HOOK
#undef GA_NEED
    GA_ROWS
};

#define GA_HOOK(symbol, class, bytes, parameters, arguments, ...)                                  \
    typedef ga_result GA_FN_##symbol parameters;
#define GA_NEED(symbol, parameters) typedef ga_result GA_FN_##symbol parameters;
#include "cuda/hooks.def"
#undef GA_HOOK
#undef GA_NEED

extern void *_Atomic ga_driver_functions[GA_ROWS];

extern void *_Atomic ga_driver_handle; // handle of the driver's library, for dlsym

// Number of captures that the program has begun and not ended (capture.h). It includes captures
// whose end the driver refused.
extern _Atomic uint32_t ga_cuda_captures;

// Returns the driver's function of a row, or NULL. It may be used only after the driver was found
// (hooks.c).
#define GA_REAL(symbol)                                                                            \
    ((GA_FN_##symbol *)atomic_load_explicit(&ga_driver_functions[GA_ROW_##symbol],                 \
                                            memory_order_relaxed))

// Calls the driver's function of a row. True: the driver has it, and it succeeded.
#define GA_ASK(symbol, ...)                                                                        \
    ({                                                                                             \
        GA_FN_##symbol *ga_asked = GA_REAL(symbol);                                                \
        ga_asked &&ga_asked(__VA_ARGS__) == GA_CUDA_SUCCESS;                                       \
    })

#endif
