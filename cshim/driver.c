// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <dlfcn.h>

#include "env.h"
#include "loader.h"
#include "log.h"

void *_Atomic ga_driver_functions[GA_ROWS];

// Facts about the process, the same in a forked child; several threads may find them at once.
static void *_Atomic handle;
static void *_Atomic base;
static _Atomic int disabled; // 0: not asked yet, 1: no, 2: yes

// One string instead of a table of pointers: nothing to relocate.
static const char names[] =
#define GA_HOOK(symbol, parameters, arguments, call) #symbol "\0"
#define GA_NEED(symbol, parameters) #symbol "\0"
#include "hooks.def"
#undef GA_HOOK
#undef GA_NEED
    ;

const char *ga_driver_name(size_t row) {
    const char *name = names;
    while (row-- > 0)
        name += ga_os_length(name) + 1;
    return name;
}

bool ga_driver_disabled(void) {
    int seen = atomic_load_explicit(&disabled, memory_order_relaxed);
    if (GA_UNLIKELY(seen == 0)) {
        seen = ga_env_disabled() ? 2 : 1;
        atomic_store_explicit(&disabled, seen, memory_order_relaxed);
    }
    return seen == 2;
}

static void *base_of(const struct ga_loader *loader, const void *address) {
    Dl_info info;
    if (!loader->dladdr || !address || !loader->dladdr(address, &info))
        return NULL;
    return info.dli_fbase;
}

// The driver by its name, however it was loaded, and never unloaded from now on: pointers into
// it are kept. Then by a function of it, for one that goes by another name.
static void *open_driver(const struct ga_loader *loader, void *known) {
    const int flags = RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE;
    void *found = loader->dlopen("libcuda.so.1", flags);
    if (found)
        return found;
    Dl_info info;
    if (!known)
        known = loader->dlsym(RTLD_NEXT, "cuInit");
    if (!known || !loader->dladdr || !loader->dladdr(known, &info))
        return NULL;
    found = loader->dlopen(info.dli_fname, flags);
    // An object that only forwards, or defines a function of the same name, is no driver.
    return found && loader->dlsym(found, "cuInit") ? found : NULL;
}

static GA_NOINLINE bool contact(void *known) {
    const struct ga_loader *loader = ga_loader_get();
    if (!loader->dlsym || !loader->dlopen)
        return false;
    void *driver = open_driver(loader, known);
    if (!driver)
        return false;
    const char *name = names;
    for (size_t row = 0; row < GA_ROWS; row++, name += ga_os_length(name) + 1)
        atomic_store(&ga_driver_functions[row], loader->dlsym(driver, name));
    atomic_store(&base, base_of(loader, GA_REAL(cuInit)));
    atomic_store(&handle, driver);
    return true;
}

bool ga_driver_contact(void *known) {
    return GA_LIKELY(atomic_load(&handle) != NULL) || contact(known);
}

void *ga_driver_find(enum ga_row row) {
    if (!ga_driver_contact(NULL))
        return NULL;
    return atomic_load(&ga_driver_functions[row]);
}

bool ga_driver_contains(const void *address) {
    void *own = atomic_load(&base);
    return own && base_of(ga_loader_get(), address) == own;
}

void *ga_driver_handle(void) {
    return atomic_load(&handle);
}
