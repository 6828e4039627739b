// SPDX-License-Identifier: Apache-2.0
// Access to the environment without libc, whose functions programs replace. env.h has the meaning
// of the variables. Callers must ask once and copy the value: other threads of the program may
// change the environment at any time, and libc's lock against that is not accessible here.
#ifndef GA_ENVIRON_H
#define GA_ENVIRON_H

#include <stdbool.h>

// Returns the value of a variable; NULL: not set, or the program is setuid. The value lies in the
// environment, and the program may overwrite it.
const char *ga_environ_get(const char *name);
// Reports whether a value switches something on: any value but "" and "0".
bool ga_environ_set(const char *value);

#endif
