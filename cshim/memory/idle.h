// SPDX-License-Identifier: Apache-2.0
// A program that idles with bytes pending, or with pools that keep some, gives nothing back by
// itself. While others wait for them (NOTIFY in the credit word), a thread of the library's own
// does: from the first free in stream order on, with all signals blocked, and only as long as
// there is something to give back.
#ifndef GA_MEMORY_IDLE_H
#define GA_MEMORY_IDLE_H

#include "memory/driver.h"

// There is something pending; starts the thread, or wakes it. The driver's library has the
// functions that make a thread.
void ga_memory_idle_wake(struct ga_root *root, const struct ga_memory_driver *driver);

#endif
