// SPDX-License-Identifier: Apache-2.0
// The environment itself, read without libc, which programs replace. What the variables mean is in
// env.h. Callers must ask once and copy the value: other threads of the program may change the
// environment at any time, and libc's lock against that cannot be taken here.
#ifndef GA_ENVIRON_H
#define GA_ENVIRON_H

#include <stdbool.h>

// Returns the value of a variable; NULL: it is not set, or this is a setuid program. The value is
// in the environment, which the program may overwrite.
const char *ga_environ_get(const char *name);
// Whether a value switches something on: anything but "", "0".
bool ga_environ_set(const char *value);

#endif
