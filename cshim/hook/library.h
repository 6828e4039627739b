// SPDX-License-Identifier: Apache-2.0
// A vendor's library as the process has loaded it: its copies and its functions. This library
// itself loads no vendor's library. resolve.c and the wrappers call these functions; copies.h
// decides which copy is held. There is no lock here, but calls of the loader take the loader's
// lock.
#ifndef GA_LIBRARY_H
#define GA_LIBRARY_H

#include "core/interface.h"

// Finds the library if it is loaded, and sets the functions of all rows. known: a function of it,
// or NULL. False: it is not loaded.
bool ga_library_find(struct ga_interface *library, void *known);
// Reports whether an address lies in the held copy.
bool ga_library_contains(const struct ga_interface *library, const void *address);
// Reports whether two addresses lie in one object.
bool ga_library_same_object(const void *address, const void *other);
// Returns the name of a row.
const char *ga_library_name(const struct ga_interface *library, size_t row);
// Returns the row of a name; −1: none. It must be fast: programs look up hundreds of functions at
// their start.
int ga_library_row(const struct ga_interface *library, const char *name);

// Returns what a program gets for the function at `real`, if it is a row's function in a copy that
// has a place; else returns real. If several rows have that function, name decides.
void *ga_library_translate(const struct ga_interface *library, void *real, const char *name);
// Translates a function that a program has looked up. If it lies in a library with the interface's
// SONAME that has no place yet, assigns a place first.
void *ga_library_translate_any(struct ga_interface *library, void *found, const char *name);
// Keeps the held copy loaded from now on, because a call has succeeded that fails before
// initialisation.
void ga_library_pin_held(struct ga_interface *library);

// Keeps this library loaded, if a program opened it with dlopen. False: that failed.
bool ga_library_pin_self(void);

// Reports whether GPUARB_DISABLE is set; reads it once in a process.
bool ga_library_disabled(void);

#endif
