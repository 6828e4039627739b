// SPDX-License-Identifier: Apache-2.0
// The library's own thread. A program that calls no driver function does not notice that its
// pending frees have executed, and its pools keep their unused memory. If another job waits for
// that memory (the daemon has set NOTIFY in the credit word), this thread gives it back. It is
// started by the first stream-ordered free, has all signals blocked, and sleeps while a process has
// no pending bytes. The interfaces' frees wake it.
#ifndef GA_MEMORY_IDLE_H
#define GA_MEMORY_IDLE_H

#include "memory/driver.h"

// Starts the thread, or wakes it, because bytes are pending. The functions that create threads are
// looked up in the driver's library.
void ga_memory_idle_wake(struct ga_root *root, const struct ga_memory_driver *driver);

#endif
