// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include "env.h"
#include "hooks.h"

void *_Atomic ga_driver_functions[GA_ROWS];

static _Atomic int disabled; // 0: not asked yet, 1: no, 2: yes

// One string instead of a table of pointers: nothing to relocate.
static const char names[] =
#define GA_HOOK(symbol, parameters, arguments, call) #symbol "\0"
#define GA_NEED(symbol, parameters) #symbol "\0"
#include "hooks.def"
#undef GA_HOOK
#undef GA_NEED
    ;

struct ga_library ga_driver = {.file = "libcuda.so.1",
                               .probe = "cuInit",
                               .names = names,
                               .functions = ga_driver_functions,
                               .wrapper = ga_hooks_wrapper,
                               .rows = GA_ROWS};

bool ga_driver_disabled(void) {
    int seen = atomic_load_explicit(&disabled, memory_order_relaxed);
    if (GA_UNLIKELY(seen == 0)) {
        seen = ga_env_disabled() ? 2 : 1;
        atomic_store_explicit(&disabled, seen, memory_order_relaxed);
    }
    return seen == 2;
}

void *ga_driver_find(enum ga_row row) {
    if (!ga_library_contact(&ga_driver, NULL))
        return NULL;
    return atomic_load(&ga_driver_functions[row]);
}
