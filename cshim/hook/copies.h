// SPDX-License-Identifier: Apache-2.0
// The copies of a vendor's library that a process has loaded, and which of them is held.
//
// Programs try one file after another: the toolkit's stub, whose cuInit fails, then the driver.
// Each copy that a function is looked up in has a place. The first one is held until another one is
// initialised with success and the first was not. A function of the copy at place 0 is its wrapper;
// one of another copy is an entry (entries.h), which leads to the wrapper while that copy is held,
// and else to the copy itself. So each call reaches the copy that it was looked up in.
#ifndef GA_COPIES_H
#define GA_COPIES_H

#include "core/interface.h"

// Whether a copy is held and still loaded; if it was unloaded, none is held from now on.
bool ga_copies_holds(struct ga_interface *library);
// Gives the copy that an address lies in a place, if it has none, and returns it. handle: the
// loader's, open during the call. −1: it cannot have one.
int ga_copies_meet(struct ga_interface *library, const void *address, void *handle);
// The place of the copy that an address lies in; −1: it was not met.
int ga_copies_at(struct ga_interface *library, const void *address);
// The function of a row in the copy at a place, or NULL.
void *ga_copies_own(const struct ga_interface *library, size_t place, size_t row);
// Holds the copy at a place if none is held.
void ga_copies_hold(struct ga_interface *library, size_t place);
// Returns what the program is given for a row's function of the copy at a place.
void *ga_copies_answer(const struct ga_interface *library, size_t place, size_t row);
// The copy at a place was initialised, or used, with success. It is held from now on, unless
// another one works: then it is said that one of the two is not held.
void ga_copies_works(struct ga_interface *library, size_t place);

#endif
