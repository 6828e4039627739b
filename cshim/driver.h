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

enum {
    GA_DRIVER_NEW = 0,      // not met yet: its functions are not all known
    GA_DRIVER_PLAIN = 1,    // what comes to a wrapper is the program's
    GA_DRIVER_DISABLED = 2, // GPUARB_DISABLE
    GA_DRIVER_REENTERS = 3, // it may be the driver's own
};
extern _Atomic int ga_driver_mode;

// GPUARB_DISABLE; asked once a process.
bool ga_driver_disabled(void);
bool ga_driver_lets_through(const void *caller);
// A wrapper that was reached by direct link meets the driver here. From then on GA_REAL is what the
// driver has, of all rows: a wrapper needs more than its own.
int ga_driver_contact(void);
static inline int ga_driver_meet(void) {
    int mode = atomic_load_explicit(&ga_driver_mode, memory_order_acquire);
    return GA_UNLIKELY(mode == GA_DRIVER_NEW) ? ga_driver_contact() : mode;
}
// Whether a wrapper that was called from there has nothing to do.
static inline bool ga_driver_passes(int mode, const void *caller) {
    return GA_UNLIKELY(mode != GA_DRIVER_PLAIN) && ga_driver_lets_through(caller);
}

#endif
