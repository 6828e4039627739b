// SPDX-License-Identifier: Apache-2.0
// The copies of a vendor's library that a process has loaded. One copy is held: wrappers call it,
// so that its memory is limited. library.c finds copies, and calls these functions; entries.h has
// the code of entries. The fields of ga_interface and ga_copy are atomic; a spin lock in copies.c
// orders their changes.
//
// Programs try one file after another: first the toolkit's stub, whose cuInit fails, then the
// driver. A copy gets a place when a function is first looked up in it. The first copy is held,
// until another copy is initialised with success and the first was not. A program that looks up a
// function in the copy at place 0 gets the wrapper. In another copy it gets an entry (entries.h),
// which leads to the wrapper while that copy is held, and else to the copy's own function. So each
// call reaches the copy in which it was looked up.
#ifndef GA_COPIES_H
#define GA_COPIES_H

#include "core/interface.h"

// Reports whether a copy is held and still loaded. If the held copy was unloaded, none is held from
// now on.
bool ga_copies_holds(struct ga_interface *library);
// Returns the place of the copy that an address lies in, and assigns one if needed. handle: the
// loader's handle of that copy, open during the call. −1: no place is unused.
int ga_copies_add(struct ga_interface *library, const void *address, void *handle);
// Returns the place of the copy that an address lies in; −1: it has none.
int ga_copies_at(struct ga_interface *library, const void *address);
// Returns the function of a row in the copy at a place, or NULL.
void *ga_copies_own(const struct ga_interface *library, size_t place, size_t row);
// Holds the copy at a place if none is held.
void ga_copies_hold(struct ga_interface *library, size_t place);
// Returns the function that a program gets when it looks up a row in the copy at a place: the
// wrapper, an entry, or the copy's own function.
void *ga_copies_answer(const struct ga_interface *library, size_t place, size_t row);
// Notes that the copy at a place was initialised, or used, with success. If no other copy works, it
// becomes the held one. Otherwise one of the two is held, and the user is told that the other is
// not limited. May change errno.
void ga_copies_works(struct ga_interface *library, size_t place);

#endif
