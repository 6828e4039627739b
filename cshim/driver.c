// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include "env.h"
#include "hooks.h"
#include "loader.h"

void *_Atomic ga_driver_functions[GA_ROWS];

_Atomic int ga_driver_mode;

// One string instead of a table of pointers: nothing to relocate.
static const char names[] =
#define GA_HOOK(symbol, parameters, arguments, call) #symbol "\0"
#define GA_NEED(symbol, parameters) #symbol "\0"
#include "hooks.def"
#undef GA_HOOK
#undef GA_NEED
    ;

// The functions of all rows are known. A driver that is not bound to itself reaches functions of
// its own through the global scope, where it finds ours.
static void met(const struct ga_library *library) {
    int new = GA_DRIVER_NEW;
    int mode = ga_driver_disabled()                              ? GA_DRIVER_DISABLED
               : ga_loader_symbolic(atomic_load(&library->base)) ? GA_DRIVER_PLAIN
                                                                 : GA_DRIVER_REENTERS;
    atomic_compare_exchange_strong(&ga_driver_mode, &new, mode);
}

struct ga_library ga_driver = {.file = "libcuda.so.1",
                               .probe = "cuInit",
                               .names = names,
                               .functions = ga_driver_functions,
                               .wrapper = ga_hooks_wrapper,
                               .met = met,
                               .rows = GA_ROWS};

bool ga_driver_disabled(void) {
    enum { NOT_ASKED, NO, YES };
    static _Atomic int disabled;
    int seen = atomic_load_explicit(&disabled, memory_order_relaxed);
    if (GA_UNLIKELY(seen == NOT_ASKED)) {
        int found = ga_env_disabled() ? YES : NO;
        if (atomic_compare_exchange_strong(&disabled, &seen, found))
            seen = found;
    }
    return seen == YES;
}

// By a jump it leaves no address of its own: then a wrapper of ours is the caller.
bool ga_driver_lets_through(const void *caller) {
    return ga_driver_disabled() ||
           (atomic_load_explicit(&ga_driver_mode, memory_order_relaxed) == GA_DRIVER_REENTERS &&
            (ga_library_contains(&ga_driver, caller) || ga_loader_ours(caller)));
}

int ga_driver_contact(void) {
    ga_library_contact(&ga_driver, NULL);
    return atomic_load(&ga_driver_mode);
}
