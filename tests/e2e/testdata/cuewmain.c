// SPDX-License-Identifier: Apache-2.0
// Allocates the bytes of the second argument with cuew_alloc and prints its result. The program is
// linked with cuew.c (-DLINKED), or opens the library whose path is the first argument.
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

int cuew_alloc(size_t bytes);

int main(int argc, char **argv) {
#ifdef LINKED
    int (*alloc)(size_t) = cuew_alloc;
#else
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*alloc)(size_t) = library ? (int (*)(size_t))dlsym(library, "cuew_alloc") : NULL;
#endif
    if (argc != 3 || !alloc)
        return 2;
    printf("%d\n", alloc((size_t)atoll(argv[2])));
    return 0;
}
