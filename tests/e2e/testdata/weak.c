// SPDX-License-Identifier: Apache-2.0
// Calls a driver function by a weak reference, as programs do that also run without a driver.
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
