// SPDX-License-Identifier: Apache-2.0
// An interface: a vendor's library whose calls are intercepted. The package of an interface, a
// folder beside core/, fills in one struct ga_interface. hook/ finds the vendor's library and its
// functions by it. The core calls its reap function. hook/interfaces.c lists the interfaces that
// programs reach by symbol look-up.
#ifndef GA_INTERFACE_H
#define GA_INTERFACE_H

#include "core/root.h"

#define GA_INTERFACES 8 // most interfaces in a process
#define GA_COPIES 4     // most copies of a library in a process; each has a place, from 0 on

// Copy of an interface's library: one loaded file. A process may load several such files.
// hook/copies.c fills this in.
struct ga_copy {
    uintptr_t _Atomic first; // address of its first byte; 0: unused place
    uintptr_t _Atomic end;   // address after its last byte
    void *_Atomic handle; // handle from the loader; the library holds no reference, so the copy may
                          // be unloaded
    void *_Atomic probe;  // address of its function named by ga_interface.probe
    _Atomic uint64_t seen; // ga_loader_unloaded() when the copy was last seen to be loaded
    // 1: a call that initialises the copy, or that needs that, has succeeded
    _Atomic uint32_t works;
    _Atomic uint32_t reported; // 1: the user was told that this copy is not the held one
};

struct ga_interface {
    const char *file;       // name by which programs open the vendor's library, and its SONAME
    const char *probe;      // name of a function that every version of the library has
    const char *prefix;     // prefix of its functions' names, before an upper-case letter
    const char *names;      // names of the rows, one after the other, each ended by NUL
    const uint8_t *lengths; // length of each name, so that a look-up can skip names fast
    void *_Atomic
        *functions;     // address of each row's function in the held copy; NULL: the copy lacks it
    void *_Atomic *own; // address of each row's function in every copy: all rows of place 0, then
                        // of place 1, …
    void *(*wrapper)(
        size_t); // returns the wrapper of a row; NULL: programs get the vendor's function
    // Returns the wrapper of a row that must know which copy is called: of functions that
    // initialise a copy, and of resolvers. Returns NULL for other rows. place: that of the copy.
    void *(*of_copy)(size_t row, size_t place);
    size_t rows;
    bool shared; // true: functions of any copy work on the objects of all copies
    // Called after a copy has become the held one; NULL: not needed.
    void (*on_held)(const struct ga_interface *, void *handle);

    // Loaded copies. One of them is held: wrappers call it, so that its memory is limited. A forked
    // child has the same copies. hook/copies.c writes these fields while other threads read them.
    struct ga_copy copies[GA_COPIES];
    _Atomic uint32_t held;   // place + 1 of the held copy, whose functions `functions` has; 0: none
    _Atomic uint32_t pinned; // 1: the held copy works, and is never unloaded
    _Atomic uint32_t entries; // number + 1 of its first entry (hook/entries.h); 0: it uses none
    uintptr_t _Atomic first;  // address of the first byte of the held copy
    uintptr_t _Atomic end;    // address after the last byte of the held copy

    // Turns pending bytes of a device that have come back into credit, and returns their number.
    // Trims pools until `wanted` bytes have come back; 0: trims none. NULL: the interface has no
    // pending bytes.
    uint64_t (*reap)(struct ga_root *root, uint32_t device, uint64_t wanted);
    // Reports whether the process has loaded an allocator that keeps freed memory of this interface
    // until a request is refused. NULL: the interface knows no such allocator.
    bool (*keeps_freed)(void);
};

// Adds an interface, when the process first uses it.
void ga_interface_join(struct ga_interface *interface);

// Calls reap of all interfaces, and returns the sum. Calls none if no bytes are pending.
uint64_t ga_interface_reap(struct ga_root *root, uint32_t device, uint64_t wanted);

// Reports whether keeps_freed returns true for any interface that the process uses.
bool ga_interface_keeps_freed(void);

#endif
