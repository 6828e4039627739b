// SPDX-License-Identifier: Apache-2.0
// An interface: a vendor's library by which programs take what is arbitrated, as far as this
// library is concerned. Its room fills one of these; hook/ finds the library and what it wraps of
// it, and the core asks it what only it can tell. hook/interfaces.c lists them all.
#ifndef GA_INTERFACE_H
#define GA_INTERFACE_H

#include "core/root.h"

#define GA_INTERFACES 8 // that a process can meet
#define GA_COPIES 4     // of one library in one process, in places from 0 on

// A copy of an interface's library: one file, loaded once. hook/copies.c fills it.
struct ga_copy {
    uintptr_t _Atomic first; // its first byte; 0: the place is free
    uintptr_t _Atomic end;   // the first byte behind its last
    void *_Atomic handle;    // the loader's, without a reference of our own
    void *_Atomic probe;     // its function of that name
    _Atomic uint64_t seen;   // ga_loader_unloaded when it was last seen to be there
    _Atomic uint32_t works;  // 1: it was initialised, or used, with success
    _Atomic uint32_t said;   // 1: the user was told that it is not held
};

struct ga_interface {
    const char *file;         // what the vendor's library goes by, and its SONAME
    const char *probe;        // a function that it has in every version
    const char *prefix;       // of its functions' names, before an upper-case letter
    const char *names;        // of the rows, one string after the other
    const uint8_t *lengths;   // of each name, so that a look-up passes over the others
    void *_Atomic *functions; // of the rows in the copy that is held, or NULL where it lacks one
    void *_Atomic *own; // of the rows in every copy: those of place 0, then those of place 1 …
    void *(*wrapper)(size_t); // what the program gets for a row's function; NULL: itself
    // The same for a row whose function has to know the place of the copy that is called: the one
    // that initialises a copy, and the resolver. NULL: the row is no such one.
    void *(*of_copy)(size_t row, size_t place);
    size_t rows;
    bool shared; // every copy's functions work on the objects of every other copy
    void (*met)(const struct ga_interface *, void *handle); // called when a copy is held, or NULL

    // Where it is: facts about the process, the same in a forked child; several threads may find
    // them at once. Filled by hook/library.c and hook/copies.c.
    struct ga_copy copies[GA_COPIES];
    _Atomic uint32_t held;    // the place + 1 of the copy whose functions `functions` are; 0: none
    _Atomic uint32_t kept;    // 1: that copy works, and stays loaded
    _Atomic uint32_t entries; // its first entry + 1 (hook/entries.h); 0: none are used
    uintptr_t _Atomic first;  // the bytes of the copy that is held: from here
    uintptr_t _Atomic end;    // to before there

    // Turns pending bytes of a device that have come back into credit: how many that was. Pools are
    // made to give up what they keep until wanted bytes came back (0: they are not). Or NULL.
    uint64_t (*reap)(struct ga_root *root, uint32_t device, uint64_t wanted);
    // Takes a block that was lost where it is not the budget alone that it came from. False: it is
    // none of its own, or it is. Or NULL.
    bool (*lose)(struct ga_root *root, const struct ga_entry *entry);
};

// The process has met it.
void ga_interface_join(struct ga_interface *interface);

// What all of them reap; nothing is asked where nothing is pending.
uint64_t ga_interface_reap(struct ga_root *root, uint32_t device, uint64_t wanted);
// Whether one of them takes a block that was lost.
bool ga_interface_lose(struct ga_root *root, const struct ga_entry *entry);

#endif
