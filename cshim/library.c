// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <dlfcn.h>

#include "loader.h"

const char *ga_library_name(const struct ga_library *library, size_t row) {
    const char *name = library->names;
    while (row-- > 0)
        name += ga_os_length(name) + 1;
    return name;
}

static void *base_of(const struct ga_loader *loader, const void *address) {
    Dl_info info;
    if (!loader->dladdr || !address || !loader->dladdr(address, &info))
        return NULL;
    return info.dli_fbase;
}

// By its name, however it was loaded, and never unloaded from now on: pointers into it are kept.
// Then by a function of it, for one that goes by another name.
static void *find(const struct ga_loader *loader, const struct ga_library *library, void *known) {
    const int flags = RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE;
    void *found = loader->dlopen(library->file, flags);
    if (found)
        return found;
    Dl_info info;
    if (!known)
        known = loader->dlsym(RTLD_NEXT, library->probe);
    if (!known || !loader->dladdr || !loader->dladdr(known, &info))
        return NULL;
    found = loader->dlopen(info.dli_fname, flags);
    // An object that only forwards, or defines a function of the same name, is no such library.
    return found && loader->dlsym(found, library->probe) ? found : NULL;
}

static GA_NOINLINE bool contact(struct ga_library *library, void *known) {
    const struct ga_loader *loader = ga_loader_get();
    if (!loader->dlsym || !loader->dlopen)
        return false;
    void *found = find(loader, library, known);
    if (!found)
        return false;
    const char *name = library->names;
    for (size_t row = 0; row < library->rows; row++, name += ga_os_length(name) + 1)
        atomic_store(&library->functions[row], loader->dlsym(found, name));
    atomic_store(&library->base, base_of(loader, loader->dlsym(found, library->probe)));
    if (library->met)
        library->met(library);
    atomic_store(&library->handle, found);
    return true;
}

bool ga_library_contact(struct ga_library *library, void *known) {
    return GA_LIKELY(atomic_load(&library->handle) != NULL) || contact(library, known);
}

bool ga_library_contains(const struct ga_library *library, const void *address) {
    void *own = atomic_load(&library->base);
    return own && base_of(ga_loader_get(), address) == own;
}
