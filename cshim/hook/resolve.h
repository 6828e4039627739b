// SPDX-License-Identifier: Apache-2.0
// The decision which pointer a program gets when it looks up a driver function. preload.c calls it;
// library.c and copies.c find the vendor's library. No lock, but calls of the loader take the
// loader's lock.
//
// Rule: ask the real resolver with the caller's own arguments. If it returns the function of a row,
// return that row's wrapper, else the pointer itself. Never guess from a name and a version.
#ifndef GA_RESOLVE_H
#define GA_RESOLVE_H

// Returns what dlsym (version NULL) or dlvsym must return to the caller at `caller`. NULL: jump to
// the real function. GA_RESOLVE_NOTHING: return NULL (preload.c knows the number).
#define GA_RESOLVE_NOTHING ((void *)-1)
void *ga_resolve_decide(void *handle, const char *name, const char *version, const void *caller);

#endif
