// SPDX-License-Identifier: Apache-2.0
// A program for musl, another C library than the driver's. For each symbol and each handle it
// prints whether dlsym found the symbol.
#include <dlfcn.h>
#include <stdio.h>

int cuMemAllocPitch(void);
int cuMemAllocPitch(void) {
    return 42;
}

static void show(const char *how, const char *name, void *found) {
    const char *error = dlerror();
    printf("%s %s: %s\n", how, name,
           found   ? "found"
           : error ? "an error"
                   : "nothing, and no error");
}

int main(void) {
    static const char *const names[] = {"strlen", "pthread_create", "nobodys", "cuMemAlloc_v2",
                                        "cuMemAllocPitch"};
    void *program = dlopen(NULL, RTLD_NOW);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        show("default", names[i], dlsym(RTLD_DEFAULT, names[i]));
        show("next", names[i], dlsym(RTLD_NEXT, names[i]));
        show("program", names[i], dlsym(program, names[i]));
    }
    return 0;
}
