// SPDX-License-Identifier: Apache-2.0
// A plug-in that is linked with -lcuda. copies.c opens it, and allocates memory by link_alloc.
#include <stddef.h>
#include <stdint.h>

int cuInit(unsigned flags);
int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int link_alloc(size_t bytes);

int link_alloc(size_t bytes) {
    void *context;
    uint64_t address;
    int result = cuInit(0);
    if (result == 0)
        result = cuCtxCreate_v2(&context, 0, 0);
    return result ? result : cuMemAlloc_v2(&address, bytes);
}
