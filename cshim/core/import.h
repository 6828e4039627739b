// SPDX-License-Identifier: Apache-2.0
// Memory of other processes that this process has opened, by any interface. Such memory is charged
// to its owner. The lease page publishes how much there is, so that the daemon does not take it for
// unexplained usage of this process. Each import counts by itself, because nothing shows whether
// two imports are of one block.
//
// In an entry of root.imports, tag is the number of times that the memory was opened. bytes is 0 if
// the size is not known.
#ifndef GA_IMPORT_H
#define GA_IMPORT_H

#include "core/root.h"

// Counts an import after the driver has opened it.
void ga_import_note(struct ga_root *root, const struct ga_entry *entry);
// Removes one use of an import, before the driver is called, because the driver may reuse the
// address or handle at once. False: no such import. Afterwards the caller must call
// ga_import_finish_remove.
bool ga_import_remove(struct ga_root *root, struct ga_key key, struct ga_entry *entry);
// Ends what ga_import_remove began. ended: the driver has closed the import; false: restores the
// use.
void ga_import_finish_remove(struct ga_root *root, const struct ga_entry *entry, bool ended);
// Removes all imports of a context that has ended.
void ga_import_sweep(struct ga_root *root, uint64_t context);

#endif
