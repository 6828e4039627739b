// SPDX-License-Identifier: Apache-2.0
// An interface: a vendor's library by which programs take what is arbitrated, as far as this
// library is concerned. Its room fills one of these; hook/ finds the library and what it wraps of
// it, and the core asks it what only it can tell. hook/interfaces.c lists them all.
#ifndef GA_INTERFACE_H
#define GA_INTERFACE_H

#include "core/root.h"

#define GA_INTERFACES 8 // that a process can meet

struct ga_interface {
    // Where it is. Filled by hook/library.c, all at contact.
    const char *file;         // what the vendor's library goes by
    const char *probe;        // a function that it has in every version
    const char *prefix;       // of its functions' names, before an upper-case letter
    const char *names;        // of the rows, one string after the other
    const uint8_t *lengths;   // of each name, so that a look-up passes over the others
    void *_Atomic *functions; // of the rows, or NULL where it lacks one
    void *(*wrapper)(size_t); // what the program gets for a row's function; NULL: itself
    size_t rows;
    void (*met)(const struct ga_interface *, void *handle); // called at contact, or NULL
    void *_Atomic handle;    // facts about the process, the same in a forked child; several
    uintptr_t _Atomic first; // threads may find them at once. Where its bytes are: from here
    uintptr_t _Atomic end;   // to before there

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
