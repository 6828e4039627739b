// SPDX-License-Identifier: Apache-2.0
// Finds the loaded copies of a vendor's library, and translates functions to wrappers.
#include "hook/library.h"

#include <dlfcn.h>

#include "core/environ.h"
#include "core/log.h"
#include "hook/copies.h"
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

// Opens the library if it is loaded: by its name, whatever its path. If it has another name, opens
// the object that has the function `known`. The caller must close the handle.
static void *open_loaded(const struct ga_loader *loader, const struct ga_interface *library,
                         void *known) {
    const int flags = RTLD_LAZY | RTLD_NOLOAD;
    void *found = loader->dlopen(library->file, flags);
    if (found)
        return found;
    Dl_info info;
    if (!known)
        known = loader->dlsym(RTLD_NEXT, library->probe);
    if (!known || !loader->dladdr || !loader->dladdr(known, &info))
        return NULL;
    found = loader->dlopen(info.dli_fname, flags);
    // An object that only forwards, or defines a function of this name itself, is a different
    // library.
    if (found && !loader->dlsym(found, library->probe)) {
        loader->dlclose(found);
        return NULL;
    }
    return found;
}

// Makes a loaded copy the held one if none is held. Does not keep it loaded before it has worked: a
// program that closes a copy that failed must be able to load another one by the same name.
static GA_NOINLINE bool find_loaded(struct ga_interface *library, void *known) {
    const struct ga_loader *loader = ga_loader_get();
    if (!loader->dlsym || !loader->dlopen || !loader->dlclose)
        return false;
    if (ga_copies_holds(library))
        return true;
    void *found = open_loaded(loader, library, known);
    if (!found)
        return false;
    int place = ga_copies_add(library, loader->dlsym(found, library->probe), found);
    loader->dlclose(found);
    if (place < 0)
        return false;
    ga_copies_hold(library, (size_t)place);
    ga_interface_join(library);
    return true;
}

bool ga_library_find(struct ga_interface *library, void *known) {
    return GA_LIKELY(atomic_load(&library->pinned) != 0) || find_loaded(library, known);
}

// Called in each intercepted call, so it must not use dladdr, which takes the loader's lock.
bool ga_library_contains(const struct ga_interface *library, const void *address) {
    uintptr_t of = (uintptr_t)address;
    return of >= atomic_load(&library->first) && of < atomic_load(&library->end);
}

bool ga_library_same_object(const void *address, const void *other) {
    const struct ga_loader *loader = ga_loader_get();
    void *base = base_of(loader, address);
    return base && base_of(loader, other) == base;
}

// Returns the row of a function in the copy at a place; of several rows the one with this name. −1:
// none.
static int row_at(const struct ga_interface *library, size_t place, const void *real,
                  const char *name) {
    int match = -1;
    for (size_t row = 0; row < library->rows; row++) {
        if (ga_copies_own(library, place, row) != real)
            continue;
        if (match < 0 || ga_os_equal(ga_library_name(library, row), name))
            match = (int)row;
    }
    return match;
}

void *ga_library_translate(const struct ga_interface *library, void *real, const char *name) {
    for (size_t place = 0; real && place < GA_COPIES; place++) {
        const struct ga_copy *copy = &library->copies[place];
        if ((uintptr_t)real < atomic_load(&copy->first) ||
            (uintptr_t)real >= atomic_load(&copy->end))
            continue;
        int row = row_at(library, place, real, name);
        return row < 0 ? real : ga_copies_answer(library, place, (size_t)row);
    }
    return real;
}

// Tells the user, once in a process, of a copy that cannot be limited. Writes only to stderr,
// because a constructor may look up functions, and must not wait for the daemon.
static void warn_of_copy(const char *path) {
    static _Atomic uint32_t reported;
    if (!atomic_exchange(&reported, 1))
        ga_log_user("this program has more copies of a driver's library loaded than gpuarb can "
                    "tell apart: %s is not limited, and memory that the program takes with it "
                    "counts against no budget; let the program load one copy",
                    path);
}

void *ga_library_translate_any(struct ga_interface *library, void *found, const char *name) {
    const struct ga_loader *loader = ga_loader_get();
    struct ga_loader_object object;
    Dl_info info;
    if (ga_copies_at(library, found) < 0 && loader->dladdr && loader->dladdr(found, &info) &&
        ga_loader_object(found, &object) && object.soname &&
        ga_os_equal(object.soname, library->file)) {
        void *handle = loader->dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (handle) {
            if (ga_copies_add(library, found, handle) < 0)
                warn_of_copy(info.dli_fname);
            loader->dlclose(handle);
        }
    }
    return ga_library_translate(library, found, name);
}

void ga_library_pin_held(struct ga_interface *library) {
    uint32_t held = atomic_load_explicit(&library->held, memory_order_acquire);
    if (GA_UNLIKELY(!atomic_load(&library->pinned) && held))
        ga_copies_works(library, held - 1);
}

bool ga_library_pin_self(void) {
    const struct ga_loader *loader = ga_loader_get();
    Dl_info info;
    return loader->dlopen && loader->dladdr && loader->dladdr((void *)ga_library_pin_self, &info) &&
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
