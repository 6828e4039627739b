// SPDX-License-Identifier: Apache-2.0
// Three libraries for loader.c that look functions up in different ways. WHO is 1, 2 or 3: the
// program is linked with libraries 1 and 2, in this order, and opens library 3.
#include "loader.h"

#include <dlfcn.h>
#include <stddef.h>

#ifndef WHO
#define WHO 1
#endif

#define JOIN(a, b) a##b
#define NAME(prefix, who) JOIN(prefix, who)

// All three libraries have these functions. Which copy is found depends on the caller and the kind
// of lookup.
int whose(void);
int whose(void) {
    return WHO;
}

// Has a name like the driver's functions, but is not one.
int cuWhose(void);
int cuWhose(void) {
    return WHO;
}

// Has the name of a function of the driver that the library wraps. It is left out if the driver
// must be called, because a program's libraries come first in the search.
#ifdef OWN
int cuMemAllocPitch(void);
int cuMemAllocPitch(void) {
    return WHO;
}
#if WHO == 3
int cuMemAllocManaged(void);
int cuMemAllocManaged(void) {
    return WHO;
}
#endif
#endif

#if WHO == 2
int versioned_old(void);
int versioned_new(void);
__asm__(".symver versioned_old, versioned@LOADER_1");
__asm__(".symver versioned_new, versioned@@LOADER_2");
int versioned_old(void) {
    return 1;
}
int versioned_new(void) {
    return 2;
}
#endif

// The answer is stored in a variable, because a call as the last statement would be compiled to a
// jump; then the return address would be the caller's.
void *NAME(lookup, WHO)(void *handle, const char *name) {
    void *volatile found = dlsym(handle, name);
    return found;
}

void *NAME(lookup_version, WHO)(void *handle, const char *name, const char *version) {
    void *volatile found = dlvsym(handle, name, version);
    return found;
}
