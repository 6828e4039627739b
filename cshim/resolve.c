// SPDX-License-Identifier: Apache-2.0
#include "resolve.h"

#include <dlfcn.h>
#include <errno.h>

#include "driver.h"
#include "hooks.h"
#include "loader.h"

static bool is_driver_name(const char *name) {
    return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

// The row of a wrapped symbol, or −1.
static int row_of(const char *name) {
    for (size_t row = 0; row < GA_ROWS; row++)
        if (ga_hooks_wrapper(row) && ga_os_equal(ga_driver_name(row), name))
            return (int)row;
    return -1;
}

void *ga_resolve_translate(void *real, const char *name) {
    int match = -1;
    for (size_t row = 0; row < GA_ROWS; row++) {
        if (!ga_hooks_wrapper(row) || atomic_load(&ga_driver_functions[row]) != real)
            continue;
        if (match < 0 || ga_os_equal(ga_driver_name(row), name))
            match = (int)row;
    }
    return match < 0 ? real : ga_hooks_wrapper((size_t)match);
}

// Where the answer is settled, nothing found is one too: a jump would find our own export.
static void *settled(void *found) {
    return found ? found : GA_RESOLVE_NOTHING;
}

static void *ask_loader(void *handle, const char *name, const char *version) {
    const struct ga_loader *loader = ga_loader_get();
    return version ? loader->dlvsym(handle, name, version) : loader->dlsym(handle, name);
}

// RTLD_DEFAULT and RTLD_NEXT search from the caller on, so only a jump from there can ask. What
// it would find is one of our exports, since a preload comes first. That is right where the
// driver is there and has the function; where not, it must not be found.
static void *decide_special(void *handle, const char *name, const char *version, int row,
                            const void *caller) {
    if (ga_driver_contact(NULL)) {
        if (!atomic_load(&ga_driver_functions[row]))
            return settled(ask_loader(ga_driver_handle(), name, version)); // dlerror says so
        // A library that is searched after us would get the driver's own function.
        return handle == RTLD_NEXT ? ga_hooks_wrapper((size_t)row) : NULL;
    }
    // No driver: somebody else's function of that name, or nothing. A library that is searched
    // after us cannot find our export as its next, and must not find its own.
    if (handle == RTLD_NEXT && !ga_loader_precedes(caller))
        return NULL;
    void *found = handle == RTLD_DEFAULT ? ask_loader(handle, name, version) : NULL;
    if (found && found != ga_hooks_wrapper((size_t)row))
        return found;
    return settled(ask_loader(RTLD_NEXT, name, version));
}

static void *decide(void *handle, const char *name, const char *version, const void *caller) {
    int row = row_of(name);
    if (row < 0 || ga_driver_contains(caller))
        return NULL;
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT)
        return decide_special(handle, name, version, row, caller);
    void *found = ask_loader(handle, name, version);
    if (!found)
        return NULL;
    bool own = found == ga_hooks_wrapper((size_t)row);
    if (!ga_driver_contact(own ? NULL : found))
        return own ? settled(ask_loader(RTLD_NEXT, name, version)) : found;
    if (own) // through the handle of the program, whose scope we are in
        return atomic_load(&ga_driver_functions[row])
                   ? found
                   : settled(ask_loader(ga_driver_handle(), name, version));
    return ga_resolve_translate(found, name);
}

void *ga_resolve_decide(void *handle, const char *name, const char *version, const void *caller) {
    const struct ga_loader *loader = ga_loader_get(); // also sets where the jump goes to
    if (GA_LIKELY(!name || !is_driver_name(name)) || !loader->dlsym || ga_driver_disabled())
        return NULL;
    int saved = errno;
    void *found = decide(handle, name, version, caller);
    errno = saved;
    return found;
}
