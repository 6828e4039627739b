// SPDX-License-Identifier: Apache-2.0
// Counts how many threads are inside a section at the same time, in a file that processes share.
// The threads count themselves; neither the library nor the daemon takes part.
#ifndef INSIDE_H
#define INSIDE_H

// Opens the file of the count. Returns 0, or −1 if the file cannot be opened.
int inside_open(const char *path);

void inside_enter(void);
void inside_leave(void);

// Returns the largest number of threads that were inside at the same time.
int inside_most(void);

#endif
