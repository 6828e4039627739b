// SPDX-License-Identifier: Apache-2.0
// The dynamic loader's real functions. This library defines dlsym and dlvsym itself, and imports
// none of these functions: before glibc 2.34 they are in libdl.so.2, which not every program loads.
// So loader.c finds them in the symbol tables. dl_iterate_phdr is not imported either, because
// programs and sanitizers replace it, and their version may call dlsym. All files of hook/ use
// this. The result is stored once; no lock.
#ifndef GA_LOADER_H
#define GA_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dl_phdr_info;
typedef int ga_loader_iterate(int (*visit)(struct dl_phdr_info *, size_t, void *), void *arg);

struct ga_loader {
    void *(*dlsym)(void *handle, const char *name);
    void *(*dlvsym)(void *handle, const char *name, const char *version);
    void *(*dlopen)(const char *name, int flags);
    int (*dlclose)(void *handle);
    int (*dladdr)(const void *address, void *info);
    ga_loader_iterate *iterate; // dl_iterate_phdr
};

// Returns the functions, and finds them at the first call. Members are NULL if libc lacks them
// (static programs).
const struct ga_loader *ga_loader_get(void);

// Reports whether the object of an address is searched before this library: the program itself, or
// an earlier preload.
bool ga_loader_precedes(const void *address);

// Loaded object that an address lies in.
struct ga_loader_object {
    uintptr_t first;    // address of its first byte
    uintptr_t end;      // address after its last byte
    bool symbolic;      // true: it finds its own functions first (DT_SYMBOLIC)
    const char *soname; // NULL: it has none; valid while the object is loaded
};
// Fills in the object that an address lies in. False: the address lies in no object.
bool ga_loader_object(const void *address, struct ga_loader_object *object);
// Reports whether the object that an address lies in exports a variable of this name, and is not
// bound to itself. Its own uses of the name then lead to the first object that exports the name.
// *at: address of the object's first byte.
bool ga_loader_has_variable(const void *address, const char *name, uintptr_t *at);
// Returns how many objects the loader has unloaded so far. While the number stays the same, all
// objects are where they were.
uint64_t ga_loader_unloaded(void);
// Reports whether an address lies in this library.
bool ga_loader_is_own(const void *address);

// Functions to which preload.c jumps: the next dlsym and dlvsym in search order. They may belong to
// another preloaded library, and not to libc.
extern void *ga_loader_next_dlsym;
extern void *ga_loader_next_dlvsym;

#endif
