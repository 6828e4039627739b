// SPDX-License-Identifier: Apache-2.0
// extension.so: what a Python extension that is linked against libcuda looks like to the loader.
// Loaded RTLD_LOCAL (ctypes.CDLL does so), with a DT_NEEDED of its own.
#include <stddef.h>
#include <stdint.h>

extern int cuInit(unsigned int);
extern int cuCtxCreate_v2(void **, unsigned int, int);
extern int cuMemAlloc_v2(uint64_t *, size_t);

int extension_alloc(size_t bytes);

// Allocates on device 0 and keeps it. The driver's code of what failed first, or 0.
int extension_alloc(size_t bytes) {
    void *context;
    uint64_t address;
    int result = cuInit(0);
    if (result == 0)
        result = cuCtxCreate_v2(&context, 0, 0);
    return result ? result : cuMemAlloc_v2(&address, bytes);
}
