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

// One that is not bound to itself reaches functions of its own through the global scope, where it
// finds ours.
static void met(const struct ga_library *library) {
    int mode = GA_DRIVER_PLAIN;
    if (!ga_driver_disabled() && !ga_loader_symbolic(atomic_load(&library->base)))
        atomic_compare_exchange_strong(&ga_driver_mode, &mode, GA_DRIVER_REENTERS);
}

struct ga_library ga_driver = {.file = "libcuda.so.1",
                               .probe = "cuInit",
                               .names = names,
                               .functions = ga_driver_functions,
                               .wrapper = ga_hooks_wrapper,
                               .met = met,
                               .rows = GA_ROWS};

bool ga_driver_disabled(void) {
    int seen = atomic_load_explicit(&ga_driver_mode, memory_order_relaxed);
    if (GA_UNLIKELY(seen == GA_DRIVER_NEW)) {
        int found = ga_env_disabled() ? GA_DRIVER_DISABLED : GA_DRIVER_PLAIN;
        if (atomic_compare_exchange_strong(&ga_driver_mode, &seen, found))
            seen = found;
    }
    return seen == GA_DRIVER_DISABLED;
}

// By a jump it leaves no address of its own: then a wrapper of ours is the caller.
bool ga_driver_lets_through(const void *caller) {
    return ga_driver_disabled() ||
           (atomic_load_explicit(&ga_driver_mode, memory_order_relaxed) == GA_DRIVER_REENTERS &&
            (ga_library_contains(&ga_driver, caller) || ga_loader_ours(caller)));
}

void *ga_driver_find(enum ga_row row) {
    if (!ga_library_contact(&ga_driver, NULL))
        return NULL;
    return atomic_load(&ga_driver_functions[row]);
}
