// SPDX-License-Identifier: Apache-2.0
// A vendor's library as the process has loaded it: where it is, and its functions. The
// shim loads none itself.
#ifndef GA_LIBRARY_H
#define GA_LIBRARY_H

#include "os.h"

struct ga_library {
    const char *file;         // what it goes by
    const char *probe;        // a function that it has in every version
    const char *names;        // of the rows, one string after the other
    void *_Atomic *functions; // of the rows, or NULL where it lacks one; only after contact
    void *(*wrapper)(size_t); // what the program gets for a row's function; NULL: itself
    void (*met)(const struct ga_library *); // called at contact, or NULL
    size_t rows;
    void *_Atomic handle; // facts about the process, the same in a forked child; several
    void *_Atomic base;   // threads may find them at once
};

// Finds the library that is loaded, pins it, and fills the functions of all rows. known: a function
// of it, or NULL. False: it is not there.
bool ga_library_contact(struct ga_library *library, void *known);
// True when the address lies in the library that was found.
bool ga_library_contains(const struct ga_library *library, const void *address);
// The name of a row.
const char *ga_library_name(const struct ga_library *library, size_t row);

#endif
