// SPDX-License-Identifier: Apache-2.0
// Three libraries that look functions up in their own ways, for loader.c. Each has -DWHO=1, 2
// or 3: the first two are linked to the program in this order, the third is opened.
#include "loader.h"

#include <dlfcn.h>
#include <stddef.h>

#ifndef WHO
#define WHO 1
#endif

#define JOIN(a, b) a##b
#define NAME(prefix, who) JOIN(prefix, who)

// All of them have these: which one is found depends on who asks and how.
int whose(void);
int whose(void) {
    return WHO;
}

// It looks like the driver's, and is none of its.
int cuWhose(void);
int cuWhose(void) {
    return WHO;
}

// It is called like a function of the driver's that is caught. Not where the driver is to be
// called: the libraries of a program come first.
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

// The answers are kept in a variable: a call in the last place would become a jump, and its
// return address the caller's.
void *NAME(lookup, WHO)(void *handle, const char *name) {
    void *volatile found = dlsym(handle, name);
    return found;
}

void *NAME(lookup_version, WHO)(void *handle, const char *name, const char *version) {
    void *volatile found = dlvsym(handle, name, version);
    return found;
}
