// SPDX-License-Identifier: Apache-2.0
// Descriptors that a forked child inherits. The child's root is wiped and does not know them, so
// this table tells the child which descriptors to close. connection.c records them; root.c closes
// them.
#ifndef GA_INHERIT_H
#define GA_INHERIT_H

#include "core/os.h"

#define GA_INHERIT_MAX                                                                             \
    67 // most entries at one time; a child keeps its copies of any further descriptors

// Records a descriptor of this process.
void ga_inherit_note(int fd, const struct ga_os_identity *id);
// Removes the record of a descriptor.
void ga_inherit_drop(int fd, const struct ga_os_identity *id);
// Closes, in a forked child, the inherited copies of the parent's descriptors.
void ga_inherit_close(void);

#endif
