// SPDX-License-Identifier: Apache-2.0
// Tells the user and the daemon that a process uses two copies of a driver's library, one of which
// is not limited.
#ifndef GA_SECOND_COPY_H
#define GA_SECOND_COPY_H

// Tells it on stderr, and to the daemon if there is one. held, beside: the paths of the copy that
// is limited and of the other copy; NULL: not known. May change errno.
void ga_second_copy_report(const char *held, const char *beside);

#endif
