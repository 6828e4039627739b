// SPDX-License-Identifier: Apache-2.0
// Report of a process that uses two copies of a driver's library, of which gpuarb limits only one.
// hook/copies.c calls it. No lock, no state.
#ifndef GA_SECOND_COPY_H
#define GA_SECOND_COPY_H

// Writes the report to stderr, and to the daemon if there is one. held: path of the limited copy;
// beside: path of the copy without limits; NULL: not known. May change errno.
void ga_second_copy_report(const char *held, const char *beside);

#endif
