// SPDX-License-Identifier: Apache-2.0
// The real driver: where it is, and its functions.
#ifndef GA_DRIVER_H
#define GA_DRIVER_H

#include "cuda.h"
#include "os.h"

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

// The driver's function of a row, or NULL. Only after ga_driver_contact.
#define GA_REAL(symbol)                                                                            \
    ((GA_FN_##symbol *)atomic_load_explicit(&ga_driver_functions[GA_ROW_##symbol],                 \
                                            memory_order_relaxed))

// Finds the driver that is loaded, pins it, and fills the table for all rows. It loads none.
// known: a function of it, or NULL. False: there is no driver.
bool ga_driver_contact(void *known);
// GPUARB_DISABLE; asked once a process.
bool ga_driver_disabled(void);
// The way into the driver of a wrapper that was reached without contact (by direct link).
void *ga_driver_find(enum ga_row row);

// The name of a row.
const char *ga_driver_name(size_t row);
// True when the address lies in the driver that was found.
bool ga_driver_contains(const void *address);
// The handle of the driver, for dlerror's sake; NULL before contact.
void *ga_driver_handle(void);

#endif
