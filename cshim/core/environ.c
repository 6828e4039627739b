// SPDX-License-Identifier: Apache-2.0
#include "core/environ.h"

#include "core/os.h"

extern char **environ;

const char *ga_environ_get(const char *name) {
    size_t n = ga_os_length(name);
    if (!environ)
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
