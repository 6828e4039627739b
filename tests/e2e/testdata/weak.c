// SPDX-License-Identifier: Apache-2.0
// A weak reference to a driver function, as programs have that run with a driver and without.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int cuMemAlloc_v2(uint64_t *address, size_t bytes) __attribute__((weak));

int main(void) {
    uint64_t address;
    if (!cuMemAlloc_v2)
        printf("missing\n");
    else
        printf("%d\n", cuMemAlloc_v2(&address, 1));
    return 0;
}
