// SPDX-License-Identifier: Apache-2.0
// The real driver: where it is, and its functions.
#ifndef GA_DRIVER_H
#define GA_DRIVER_H

#include "cuda.h"
#include "library.h"

// One number for each row of hooks.def.
enum ga_row {
#define GA_HOOK(symbol, parameters, arguments, call) GA_ROW_##symbol,
#define GA_NEED(symbol, parameters) GA_ROW_##symbol,
#include "hooks.def"
#undef GA_HOOK
#undef GA_NEED
    GA_ROWS
};

#define GA_HOOK(symbol, parameters, arguments, call) typedef ga_result GA_FN_##symbol parameters;
#define GA_NEED(symbol, parameters) typedef ga_result GA_FN_##symbol parameters;
#include "hooks.def"
#undef GA_HOOK
#undef GA_NEED

extern void *_Atomic ga_driver_functions[GA_ROWS];

extern struct ga_library ga_driver;

// The driver's function of a row, or NULL. Only after contact with ga_driver.
#define GA_REAL(symbol)                                                                            \
    ((GA_FN_##symbol *)atomic_load_explicit(&ga_driver_functions[GA_ROW_##symbol],                 \
                                            memory_order_relaxed))

// GPUARB_DISABLE; asked once a process.
bool ga_driver_disabled(void);
// The way into the driver of a wrapper that was reached without contact (by direct link).
void *ga_driver_find(enum ga_row row);

#endif
