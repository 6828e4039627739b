// SPDX-License-Identifier: Apache-2.0
// The descriptors that this process holds, for a forked child: it inherits them, and a root that
// knows nothing of them.
#ifndef GA_INHERIT_H
#define GA_INHERIT_H

#include "core/os.h"

#define GA_INHERIT_MAX 67 // most that are noted at one time; a child keeps its copy of any more

void ga_inherit_note(int fd, const struct ga_os_identity *id);
void ga_inherit_drop(int fd, const struct ga_os_identity *id);
// In the child: closes its copies of its parent's.
void ga_inherit_close(void);

#endif
