// SPDX-License-Identifier: Apache-2.0
// An interface: a vendor's library by which programs take what is arbitrated, as far as this
// library is concerned. Its room fills one of these; hook/ finds the library and what it wraps of
// it, and the core asks it what only it can tell. hook/interfaces.c lists those that are found by
// look-ups.
#ifndef GA_INTERFACE_H
#define GA_INTERFACE_H

#include "core/root.h"

#define GA_INTERFACES 8 // that a process can meet
#define GA_COPIES 4     // most copies of a library in a process; each has a place, from 0 on

// A copy of an interface's library: one file that is loaded. A process may load several such files.
// hook/copies.c fills this.
struct ga_copy {
    uintptr_t _Atomic first; // address of its first byte; 0: the place is free
    uintptr_t _Atomic end;   // address of the first byte behind it
    void *_Atomic handle;    // the loader's; no reference of ours keeps it open
    void *_Atomic probe;     // address of its function ga_interface.probe
    _Atomic uint64_t seen;   // ga_loader_unloaded() when it was last seen to be loaded
    _Atomic uint32_t works;  // 1: a call that initialises it, or needs that, has succeeded
    _Atomic uint32_t said;   // 1: the user was told that it is not the held copy
};

struct ga_interface {
    const char *file;         // name by which programs open the vendor's library, and its SONAME
    const char *probe;        // a function that it has in every version
    const char *prefix;       // of its functions' names, before an upper-case letter
    const char *names;        // of the rows, one string after the other
    const uint8_t *lengths;   // of each name, so that a look-up passes over the others
    void *_Atomic *functions; // of each row, in the held copy; NULL: the copy lacks it
    void *_Atomic *own;       // of each row, in every copy: all of place 0, all of place 1, …
    void *(*wrapper)(size_t); // what programs get for a row's function; NULL: the function itself
    // The wrapper of a row that must know the place of the copy that is called: of the functions
    // that initialise a copy, and of the resolvers. NULL: the row is none of these.
    void *(*of_copy)(size_t row, size_t place);
    size_t rows;
    bool shared; // true: the functions of any copy work on the objects of all copies
    // Called after a copy became the held one; or NULL.
    void (*met)(const struct ga_interface *, void *handle);

    // The loaded copies. One of them is held: wrappers call it, so that its memory is limited. A
    // forked child has the same ones. hook/copies.c writes this while other threads read it.
    struct ga_copy copies[GA_COPIES];
    _Atomic uint32_t held;    // place + 1 of the held copy, the one in `functions`; 0: none
    _Atomic uint32_t kept;    // 1: the held copy works, and is never unloaded
    _Atomic uint32_t entries; // number + 1 of its first entry (hook/entries.h); 0: it uses none
    uintptr_t _Atomic first;  // address of the first byte of the held copy
    uintptr_t _Atomic end;    // address of the first byte behind it

    // Turns pending bytes of a device that have come back into credit: how many that was. Pools are
    // made to give up what they keep until wanted bytes came back (0: they are not). Or NULL.
    uint64_t (*reap)(struct ga_root *root, uint32_t device, uint64_t wanted);
};

// The process has met it.
void ga_interface_join(struct ga_interface *interface);

// What all of them reap; nothing is asked where nothing is pending.
uint64_t ga_interface_reap(struct ga_root *root, uint32_t device, uint64_t wanted);

#endif
