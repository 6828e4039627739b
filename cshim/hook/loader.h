// SPDX-License-Identifier: Apache-2.0
// The dynamic loader's real functions. The library defines dlsym and dlvsym
// itself, and imports none of the family: on glibc before 2.34 they lie in
// libdl.so.2, which not every program has. They are looked up by hand in the
// object that has them. Nor is dl_iterate_phdr imported, which programs and sanitizers
// replace: the call would come to theirs, which may look the real one up by dlsym.
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

// Filled at the first use; members are NULL where libc has none (a static program).
const struct ga_loader *ga_loader_get(void);

// Whether the object of an address is searched before this library: the program, or an earlier
// preload. (Objects come in that order.)
bool ga_loader_precedes(const void *address);

// What there is to know of the object that an address lies in. False: it is in none.
struct ga_loader_object {
    uintptr_t first;    // its first byte, and
    uintptr_t end;      // the first behind its last
    bool symbolic;      // it finds its own functions first (DT_SYMBOLIC)
    const char *soname; // or NULL; valid while the object is loaded
};
bool ga_loader_object(const void *address, struct ga_loader_object *object);
// Reports whether the object that an address lies in exports a variable of this name, and is not
// bound to itself: then its own uses of the name lead to the first object that exports it. *at
// becomes the address of the object's first byte.
bool ga_loader_has_variable(const void *address, const char *name, uintptr_t *at);
// Returns how many objects the loader has unloaded so far. While the number stays the same, every
// object is still where it was.
uint64_t ga_loader_unloaded(void);
// Whether an address lies in this library.
bool ga_loader_ours(const void *address);

// Where the interposed functions go on to, for preload.c's jumps: the next dlsym after ours,
// which another preload may have put before libc's.
extern void *ga_loader_next_dlsym;
extern void *ga_loader_next_dlvsym;

#endif
