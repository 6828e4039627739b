// SPDX-License-Identifier: Apache-2.0
// Reads the environment without libc's getenv.
#include "core/environ.h"

#include <linux/auxvec.h>

#include "core/os.h"

extern char **environ;
// Weak, because some libc may lack it.
extern unsigned long getauxval(unsigned long type) __attribute__((weak));

// Reports whether the program has more rights than the user who started it (setuid), as
// secure_getenv(3) does. Such a user must not choose files that the program writes to, or its
// daemon.
static bool is_setuid(void) {
    return getauxval && getauxval(AT_SECURE);
}

const char *ga_environ_get(const char *name) {
    size_t n = ga_os_length(name);
    if (!environ || is_setuid())
        return NULL;
    for (char **e = environ; *e; e++) {
        size_t i = 0;
        while (i < n && (*e)[i] == name[i])
            i++;
        if (i == n && (*e)[n] == '=')
            return *e + n + 1;
    }
    return NULL;
}

bool ga_environ_set(const char *value) {
    return value && *value && !ga_os_equal(value, "0");
}
