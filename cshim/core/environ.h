// SPDX-License-Identifier: Apache-2.0
// The environment itself, read without libc, which programs replace. What the variables mean is in
// env.h. Who asks does so once and keeps the answer: a program's other threads may change the
// environment, and libc's lock for that cannot be taken.
#ifndef GA_ENVIRON_H
#define GA_ENVIRON_H

#include <stdbool.h>

// The value of a variable, or NULL; in a setuid program always NULL. The program may overwrite it.
const char *ga_environ_get(const char *name);
// Whether a value switches something on: anything but "", "0".
bool ga_environ_set(const char *value);

#endif
