// SPDX-License-Identifier: Apache-2.0
// What is said when a process uses two copies of a driver's library and one of them is not held.
#ifndef GA_TWICE_H
#define GA_TWICE_H

// Says it on stderr, and to the daemon if there is one. The paths of the copy that is held and of
// the one beside it; NULL: not known. The caller keeps errno.
void ga_twice_tell(const char *held, const char *beside);

#endif
