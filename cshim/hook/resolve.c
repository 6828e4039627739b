// SPDX-License-Identifier: Apache-2.0
// Decides about look-ups of driver functions, for each kind of handle and for each build.
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

// Returns the interface whose prefix a name has; NULL: none.
static struct ga_interface *library_of(const char *name) {
    for (size_t i = 0; i < GA_INTERFACES && ga_interfaces[i]; i++) {
        const char *prefix = ga_interfaces[i]->prefix;
        if (ga_os_begins(name, prefix) && is_upper(name[ga_os_length(prefix)]))
            return ga_interfaces[i];
    }
    return NULL;
}

// Returns the answer of a finished search. If the search found nothing, the caller must not jump to
// the real function, which would find our own export.
static void *or_nothing(void *found) {
    return found ? found : GA_RESOLVE_NOTHING;
}

// A look-up: its arguments, its caller, and the row that it names.
struct lookup {
    struct ga_interface *library;
    void *handle;
    const char *name, *version;
    const void *caller;
    size_t row;
    void *wrapper;
};

static void *find_in(const struct lookup *l, void *handle) {
    const struct ga_loader *loader = ga_loader_get();
    return l->version ? loader->dlvsym(handle, l->name, l->version)
                      : loader->dlsym(handle, l->name);
}

// Searches the held copy for a function that it may lack. If another thread has closed the held
// copy meanwhile, no copy is held, and the objects after this library are searched.
static void *find_in_library(const struct lookup *l) {
    uint32_t held = atomic_load(&l->library->held);
    void *handle = held ? atomic_load(&l->library->copies[held - 1].handle) : RTLD_NEXT;
    return or_nothing(find_in(l, handle)); // if nothing was found, dlerror has the reason
}

// Searches the scope of the caller's object, which comes after the global scope.
static void *find_beside_caller(const struct lookup *l) {
    const struct ga_loader *loader = ga_loader_get();
    Dl_info info;
    void *own = NULL;
    if (loader->dladdr && loader->dlclose && loader->dladdr(l->caller, &info))
        own = loader->dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!own)
        return NULL;
    void *found = find_in(l, own);
    loader->dlclose(own);
    return found;
}

// Returns what a search that finds our export would find without it.
static void *find_without_exports(const struct lookup *l) {
    void *found = find_in(l, RTLD_NEXT);
    if (!found && l->handle == RTLD_DEFAULT)
        found = find_beside_caller(l);
    return found
               ? found
               : or_nothing(find_in(l, RTLD_NEXT)); // if nothing was found, dlerror has the reason
}

// Decides for RTLD_DEFAULT and RTLD_NEXT. With them the real dlsym searches from its caller on, so
// this library must not call it for the program: it can only jump to it. After a jump, the real
// dlsym would find our export, because a preloaded library comes first. That is right if the
// vendor's library is loaded and has the function. Otherwise our export must not be found.
static void *decide_special(const struct lookup *l) {
    if (ga_library_find(l->library, NULL)) {
        if (!atomic_load(&l->library->functions[l->row]))
            return find_in_library(l);
        // A caller that is searched after this library would get the vendor's own function.
        return l->handle == RTLD_NEXT ? l->wrapper : NULL;
    }
    // The vendor's library is not loaded. The program gets another object's function of that name,
    // or none. A caller that is searched after this library cannot find our export by RTLD_NEXT,
    // and must not find its own function.
    if (l->handle == RTLD_NEXT && !ga_loader_precedes(l->caller))
        return NULL;
    void *found = l->handle == RTLD_DEFAULT ? find_in(l, RTLD_DEFAULT) : NULL;
    if (found && found != l->wrapper)
        return found;
    return find_without_exports(l);
}

// Decides while this library is disabled: no caller may find our exports.
static void *decide_disabled(const struct lookup *l) {
    if (l->handle == RTLD_NEXT ? !ga_loader_precedes(l->caller)
                               : find_in(l, l->handle) != l->wrapper)
        return NULL; // the search does not reach our export
    return find_without_exports(l);
}

// Reports whether the user must be warned of the library that begins at an address: once for each
// library, and for at most eight libraries.
static bool is_first_warning(uintptr_t first) {
    static uintptr_t _Atomic warned[8];
    for (size_t i = 0; i < sizeof warned / sizeof warned[0]; i++) {
        uintptr_t there = 0;
        if (atomic_compare_exchange_strong(&warned[i], &there, first))
            return true;
        if (there == first)
            return false;
    }
    return false;
}

// Warns, once for a library, if it has a variable with the name of a driver function. It will store
// the function there. But the loader has bound the name to our exported function, so the store
// crashes the program. This cannot be prevented here, so the warning says how to start the program
// without exports.
static void warn_of_variable(const struct lookup *l) {
    const struct ga_loader *loader = ga_loader_get();
    uintptr_t at;
    Dl_info info;
    if (!l->wrapper || !ga_loader_has_variable(l->caller, l->name, &at) ||
        find_in(l, RTLD_DEFAULT) != l->wrapper || !loader->dladdr ||
        !loader->dladdr(l->caller, &info) || !is_first_warning(at))
        return;
    ga_log_user(
        "%s has a variable named %s, which under gpuarb is bound to the function of that name: "
        "storing into it will crash the program. Start the program with gpuarb run --no-exports "
        "(or gpuarb enable --no-exports)",
        info.dli_fname, l->name);
}

// Decides in the build without exports, in which RTLD_DEFAULT and RTLD_NEXT find the vendor's
// function.
static void *decide_without_exports(const struct lookup *l) {
    void *found = find_in(l, RTLD_DEFAULT);
    if (!found)
        found = find_beside_caller(l);
    if (!found || !ga_library_find(l->library, found))
        return NULL;
    void *answer = ga_library_translate_any(l->library, found, l->name);
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
        return NULL; // this library does not export the function: the search finds another one
    if (!ga_exports && (special || ga_library_disabled()))
        return ga_library_disabled() ? NULL : decide_without_exports(l);
    if (ga_library_disabled())
        return decide_disabled(l);
    warn_of_variable(l);
    if (special)
        return decide_special(l);
    void *found = find_in(l, l->handle);
    if (!found)
        return NULL;
    bool own = found == l->wrapper;
    // Search again, so that dlerror reports this look-up and none of the searches in between.
    if (!ga_library_find(l->library, own ? NULL : found))
        return or_nothing(find_in(l, own ? RTLD_NEXT : l->handle));
    if (own) // the handle is the program's, whose scope contains this library
        return atomic_load(&l->library->functions[l->row]) ? found : find_in_library(l);
    return ga_library_translate_any(l->library, found, l->name);
}

void *ga_resolve_decide(void *handle, const char *name, const char *version, const void *caller) {
    const struct ga_loader *loader = ga_loader_get(); // also sets the targets of the jumps
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
