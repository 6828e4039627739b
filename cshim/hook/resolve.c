// SPDX-License-Identifier: Apache-2.0
#include "hook/resolve.h"

#include <dlfcn.h>
#include <errno.h>

#include "core/log.h"
#include "hook/exports.h"
#include "hook/interfaces.h"
#include "hook/library.h"
#include "hook/loader.h"

static bool is_upper(char c) {
    return c >= 'A' && c <= 'Z';
}

// The interface that a function of this name may be of, or NULL.
static struct ga_interface *library_of(const char *name) {
    for (size_t i = 0; i < GA_INTERFACES && ga_interfaces[i]; i++) {
        const char *prefix = ga_interfaces[i]->prefix;
        if (ga_os_begins(name, prefix) && is_upper(name[ga_os_length(prefix)]))
            return ga_interfaces[i];
    }
    return NULL;
}

// Where the answer is settled, nothing found is one too: a jump would find our own export.
static void *settled(void *found) {
    return found ? found : GA_RESOLVE_NOTHING;
}

// What somebody looks up, and where.
struct lookup {
    struct ga_interface *library;
    void *handle;
    const char *name, *version;
    const void *caller;
    size_t row;
    void *wrapper;
};

static void *found_in(const struct lookup *l, void *handle) {
    const struct ga_loader *loader = ga_loader_get();
    return l->version ? loader->dlvsym(handle, l->name, l->version)
                      : loader->dlsym(handle, l->name);
}

// Asks the library itself for a function that it may lack. If another thread has closed the held
// copy since it was met, no copy is held, and the objects behind us are searched.
static void *in_library(const struct lookup *l) {
    uint32_t held = atomic_load(&l->library->held);
    void *handle = held ? atomic_load(&l->library->copies[held - 1].handle) : RTLD_NEXT;
    return settled(found_in(l, handle)); // dlerror says so
}

// In the scope of the caller's own object, which is searched behind the global one.
static void *found_beside_caller(const struct lookup *l) {
    const struct ga_loader *loader = ga_loader_get();
    Dl_info info;
    void *own = NULL;
    if (loader->dladdr && loader->dlclose && loader->dladdr(l->caller, &info))
        own = loader->dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!own)
        return NULL;
    void *found = found_in(l, own);
    loader->dlclose(own);
    return found;
}

// What a search that meets our export would find without it.
static void *found_without_us(const struct lookup *l) {
    void *found = found_in(l, RTLD_NEXT);
    if (!found && l->handle == RTLD_DEFAULT)
        found = found_beside_caller(l);
    return found ? found : settled(found_in(l, RTLD_NEXT)); // dlerror says so
}

// RTLD_DEFAULT and RTLD_NEXT search from the caller on, so only a jump from there can ask. What
// it would find is one of our exports, since a preload comes first. That is right where the
// library is there and has the function; where not, it must not be found.
static void *decide_special(const struct lookup *l) {
    if (ga_library_contact(l->library, NULL)) {
        if (!atomic_load(&l->library->functions[l->row]))
            return in_library(l);
        // A library that is searched after us would get the vendor's own function.
        return l->handle == RTLD_NEXT ? l->wrapper : NULL;
    }
    // It is not there: somebody else's function of that name, or nothing. A library that is
    // searched after us cannot find our export as its next, and must not find its own.
    if (l->handle == RTLD_NEXT && !ga_loader_precedes(l->caller))
        return NULL;
    void *found = l->handle == RTLD_DEFAULT ? found_in(l, RTLD_DEFAULT) : NULL;
    if (found && found != l->wrapper)
        return found;
    return found_without_us(l);
}

// Switched off, our exports must not be found by anybody.
static void *decide_disabled(const struct lookup *l) {
    if (l->handle == RTLD_NEXT ? !ga_loader_precedes(l->caller)
                               : found_in(l, l->handle) != l->wrapper)
        return NULL; // the search does not meet ours
    return found_without_us(l);
}

// Reports whether the user is to be warned of the library that begins at an address: once for each
// library, and of a few libraries at most.
static bool is_first_warning(uintptr_t first) {
    static uintptr_t _Atomic said[8];
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        uintptr_t there = 0;
        if (atomic_compare_exchange_strong(&said[i], &there, first))
            return true;
        if (there == first)
            return false;
    }
    return false;
}

// Warns, once for a library, if it has a variable with the name of the driver function that it
// looks up. It will store the function there; but the loader has bound the name to our exported
// function, so that the store crashes the program. Nothing here can prevent that: the user is told
// how to start the program without exports.
static void warn_of_variable(const struct lookup *l) {
    const struct ga_loader *loader = ga_loader_get();
    uintptr_t at;
    Dl_info info;
    if (!l->wrapper || !ga_loader_has_variable(l->caller, l->name, &at) ||
        found_in(l, RTLD_DEFAULT) != l->wrapper || !loader->dladdr ||
        !loader->dladdr(l->caller, &info) || !is_first_warning(at))
        return;
    ga_log_user(
        "%s has a variable named %s, which under gpuarb is bound to the function of that name: "
        "storing into it will crash the program. Start the program with gpuarb run --no-exports "
        "(or gpuarb enable --no-exports)",
        info.dli_fname, l->name);
}

// Decides for the build without exports, with which RTLD_DEFAULT and RTLD_NEXT find the vendor's
// own function.
static void *decide_without_exports(const struct lookup *l) {
    void *found = found_in(l, RTLD_DEFAULT);
    if (!found)
        found = found_beside_caller(l);
    if (!found || !ga_library_contact(l->library, found))
        return NULL;
    void *answer = ga_library_found(l->library, found, l->name);
    return answer == found ? NULL : answer;
}

static void *decide(struct lookup *l) {
    int row = ga_library_row(l->library, l->name);
    void *wrapper = row < 0 ? NULL : l->library->wrapper((size_t)row);
    bool of_copy = row >= 0 && l->library->of_copy && l->library->of_copy((size_t)row, 0);
    if ((!wrapper && !of_copy) || ga_library_contains(l->library, l->caller))
        return NULL;
    l->row = (size_t)row;
    l->wrapper = wrapper;
    bool special = l->handle == RTLD_DEFAULT || l->handle == RTLD_NEXT;
    if (!wrapper && (special || ga_library_disabled()))
        return NULL; // we do not export the function: a search finds another one
    if (!ga_exports && (special || ga_library_disabled()))
        return ga_library_disabled() ? NULL : decide_without_exports(l);
    if (ga_library_disabled())
        return decide_disabled(l);
    warn_of_variable(l);
    if (special)
        return decide_special(l);
    void *found = found_in(l, l->handle);
    if (!found)
        return NULL;
    bool own = found == l->wrapper;
    // Asked again, so that dlerror says nothing of what was looked for in between.
    if (!ga_library_contact(l->library, own ? NULL : found))
        return settled(found_in(l, own ? RTLD_NEXT : l->handle));
    if (own) // through the handle of the program, whose scope we are in
        return atomic_load(&l->library->functions[l->row]) ? found : in_library(l);
    return ga_library_found(l->library, found, l->name);
}

void *ga_resolve_decide(void *handle, const char *name, const char *version, const void *caller) {
    const struct ga_loader *loader = ga_loader_get(); // also sets where the jump goes to
    struct ga_interface *library = GA_LIKELY(name != NULL) ? library_of(name) : NULL;
    if (GA_LIKELY(!library) || !loader->dlsym)
        return NULL;
    int saved = errno;
    struct lookup l = {
        .library = library, .handle = handle, .name = name, .version = version, .caller = caller};
    void *found = decide(&l);
    errno = saved;
    return found;
}
