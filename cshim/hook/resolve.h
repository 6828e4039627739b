// SPDX-License-Identifier: Apache-2.0
// Which pointer a program gets that looks a function of the driver or of NVML up.
//
// The rule: the real resolver is asked with the caller's own arguments, and the
// pointer that it returned is translated to the wrapper of exactly that symbol, or
// handed on as it is. Nothing is ever guessed from a name and a version.
#ifndef GA_RESOLVE_H
#define GA_RESOLVE_H

// What dlsym (version NULL) or dlvsym shall return to the caller at `caller`. NULL: the real one
// decides, called from there. GA_RESOLVE_NOTHING: NULL itself (preload.c knows the number).
#define GA_RESOLVE_NOTHING ((void *)-1)
void *ga_resolve_decide(void *handle, const char *name, const char *version, const void *caller);

#endif
