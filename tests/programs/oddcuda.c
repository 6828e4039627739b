// SPDX-License-Identifier: Apache-2.0
// oddcuda: a broken libcuda.so.1 for gpuarb doctor. ODDCUDA chooses the fault: `hang` (when it is
// loaded), `crash` (when it is initialised), `fail` (it finds no driver in the kernel). Without
// ODDCUDA it is newer than the library, and returns an unknown version of cuMemAlloc.
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *what) {
    const char *odd = getenv("ODDCUDA");
    return odd && strcmp(odd, what) == 0;
}

__attribute__((constructor)) static void load(void) {
    while (is("hang"))
        pause();
}

int cuInit(unsigned int flags);
int cuInit(unsigned int flags) {
    (void)flags;
    if (is("crash"))
        (void)raise(SIGSEGV);
    return is("fail") ? 999 : 0;
}

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) {
    *version = 99000;
    return 0;
}

int cuDeviceGetCount(int *count);
int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    (void)address, (void)bytes;
    return 999;
}

int cuMemAlloc_v9(uint64_t *address, size_t bytes);
int cuMemAlloc_v9(uint64_t *address, size_t bytes) {
    (void)address, (void)bytes;
    return 999;
}

int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);
int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    (void)version, (void)flags;
    if (strcmp(name, "cuMemAlloc") != 0)
        return 500; // not found
    *function = getenv("ODDCUDA") ? (void *)cuMemAlloc_v2 : (void *)cuMemAlloc_v9;
    return 0;
}
