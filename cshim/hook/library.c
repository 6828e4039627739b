// SPDX-License-Identifier: Apache-2.0
#include "hook/library.h"

#include <dlfcn.h>

#include "core/environ.h"
#include "hook/loader.h"

const char *ga_library_name(const struct ga_interface *library, size_t row) {
    const char *name = library->names;
    for (size_t i = 0; i < row; i++)
        name += library->lengths[i] + 1;
    return name;
}

int ga_library_row(const struct ga_interface *library, const char *name) {
    size_t length = ga_os_length(name);
    const char *of = library->names;
    for (size_t row = 0; row < library->rows; of += library->lengths[row] + 1, row++)
        if (library->lengths[row] == length && ga_os_equal(of, name))
            return (int)row;
    return -1;
}

static void *base_of(const struct ga_loader *loader, const void *address) {
    Dl_info info;
    if (!loader->dladdr || !address || !loader->dladdr(address, &info))
        return NULL;
    return info.dli_fbase;
}

// By its name, however it was loaded, and never unloaded from now on: pointers into it are kept.
// Then by a function of it, for one that goes by another name.
static void *open_loaded(const struct ga_loader *loader, const struct ga_interface *library,
                         void *known) {
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

static GA_NOINLINE bool contact(struct ga_interface *library, void *known) {
    const struct ga_loader *loader = ga_loader_get();
    if (!loader->dlsym || !loader->dlopen)
        return false;
    void *found = open_loaded(loader, library, known);
    if (!found)
        return false;
    const char *name = library->names;
    for (size_t row = 0; row < library->rows; name += library->lengths[row] + 1, row++)
        atomic_store(&library->functions[row], loader->dlsym(found, name));
    struct ga_loader_object object;
    if (ga_loader_object(loader->dlsym(found, library->probe), &object)) {
        atomic_store(&library->first, object.first);
        atomic_store(&library->end, object.end);
    }
    ga_interface_join(library);
    if (library->met)
        library->met(library, found);
    atomic_store(&library->handle, found);
    return true;
}

bool ga_library_contact(struct ga_interface *library, void *known) {
    return GA_LIKELY(atomic_load(&library->handle) != NULL) || contact(library, known);
}

// Asked in each call: the loader's own answer, dladdr, takes its lock.
bool ga_library_contains(const struct ga_interface *library, const void *address) {
    uintptr_t of = (uintptr_t)address;
    return of >= atomic_load(&library->first) && of < atomic_load(&library->end);
}

bool ga_library_beside(const void *address, const void *other) {
    const struct ga_loader *loader = ga_loader_get();
    void *base = base_of(loader, address);
    return base && base_of(loader, other) == base;
}

void *ga_library_translate(const struct ga_interface *library, void *real, const char *name) {
    int match = -1;
    for (size_t row = 0; row < library->rows; row++) {
        if (atomic_load(&library->functions[row]) != real || !library->wrapper(row))
            continue;
        if (match < 0 || ga_os_equal(ga_library_name(library, row), name))
            match = (int)row;
    }
    return match < 0 ? real : library->wrapper((size_t)match);
}

bool ga_library_stays(void) {
    const struct ga_loader *loader = ga_loader_get();
    Dl_info info;
    return loader->dlopen && loader->dladdr && loader->dladdr((void *)ga_library_stays, &info) &&
           loader->dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

bool ga_library_disabled(void) {
    enum { NOT_ASKED, NO, YES };
    static _Atomic int disabled;
    int seen = atomic_load_explicit(&disabled, memory_order_relaxed);
    if (GA_UNLIKELY(seen == NOT_ASKED)) {
        int found = ga_environ_set(ga_environ_get("GPUARB_DISABLE")) ? YES : NO;
        if (atomic_compare_exchange_strong(&disabled, &seen, found))
            seen = found;
    }
    return seen == YES;
}
