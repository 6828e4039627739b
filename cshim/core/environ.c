// SPDX-License-Identifier: Apache-2.0
#include "core/environ.h"

#include <linux/auxvec.h>

#include "core/os.h"

extern char **environ;
// libc's, where it has it.
extern unsigned long getauxval(unsigned long type) __attribute__((weak));

// The program has rights that whoever started it has not (setuid), as for secure_getenv(3): he does
// not say which files it writes to, or whom it asks.
static bool is_entrusted(void) {
    return getauxval && getauxval(AT_SECURE);
}

const char *ga_environ_get(const char *name) {
    size_t n = ga_os_length(name);
    if (!environ || is_entrusted())
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
