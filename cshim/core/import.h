// SPDX-License-Identifier: Apache-2.0
// Memory of other processes that this one has, by whatever interface: it is charged to its owner,
// and what the device may show of it for this process is no memory that no call names. How much
// that is the page says. Each import counts, since nothing tells whether two are of the same
// memory.
//
// An entry of root.imports: its tag counts how often the memory was opened, and bytes is 0 where
// nobody tells its size.
#ifndef GA_IMPORT_H
#define GA_IMPORT_H

#include "core/root.h"

void ga_import_note(struct ga_root *root, const struct ga_entry *entry);
// Takes one use of it out, before the driver is asked, which may give the address or handle out
// again. False: there is none. Then ga_import_ended says whether the driver has ended it.
bool ga_import_remove(struct ga_root *root, struct ga_key key, struct ga_entry *entry);
void ga_import_ended(struct ga_root *root, const struct ga_entry *entry, bool ended);
// All of a context has ended.
void ga_import_sweep(struct ga_root *root, uint64_t context);

#endif
