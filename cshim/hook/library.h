// SPDX-License-Identifier: Apache-2.0
// A vendor's library as the process has loaded it: where it is, and its functions. The
// shim loads none itself.
#ifndef GA_LIBRARY_H
#define GA_LIBRARY_H

#include "core/interface.h"

// Finds the library if it is loaded, and fills the functions of all rows. known: a function of it,
// or NULL. False: it is not loaded.
bool ga_library_contact(struct ga_interface *library, void *known);
// True when the address lies in the library that was found.
bool ga_library_contains(const struct ga_interface *library, const void *address);
// True when two addresses lie in one object.
bool ga_library_beside(const void *address, const void *other);
// The name of a row.
const char *ga_library_name(const struct ga_interface *library, size_t row);
// The row of a name; −1: there is none. Programs look up hundreds of functions as they start.
int ga_library_row(const struct ga_interface *library, const char *name);

// Returns what a program gets for the function at `real`, if that is a row's in a copy that has a
// place; else real. Of several rows with that function, name decides.
void *ga_library_translate(const struct ga_interface *library, void *real, const char *name);
// Translates a function that a program has looked up. If it lies in a library with the interface's
// SONAME that has no place yet, that library gets one.
void *ga_library_found(struct ga_interface *library, void *found, const char *name);
// Notes that the held copy works, because a call has succeeded that fails before initialisation.
// The copy stays loaded from now on.
void ga_library_keep(struct ga_interface *library);

// Has this library stay loaded, which somebody has opened. False: it cannot.
bool ga_library_stays(void);

// GPUARB_DISABLE; asked once a process.
bool ga_library_disabled(void);

#endif
