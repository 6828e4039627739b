// SPDX-License-Identifier: Apache-2.0
// How many are inside at once, by the count of those who come and go themselves, in a file that
// processes share. Neither the library nor the daemon has a part in it.
#ifndef INSIDE_H
#define INSIDE_H

// 0, or -1 where the file cannot be had.
int inside_open(const char *path);

void inside_enter(void);
void inside_leave(void);

// The most that were ever inside.
int inside_most(void);

#endif
