// SPDX-License-Identifier: Apache-2.0
//
// bench [HELD]: prints the nanoseconds of an allocation with its free, on the driver in the library
// path.

#include "testlib.h"

#include <time.h>

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    enum { ROUNDS = 1000000 };
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*release)(CUdeviceptr);
    CUdeviceptr p;
    *(void **)&alloc = driver_symbol("cuMemAlloc_v2");
    *(void **)&release = driver_symbol("cuMemFree_v2");
    open_device(0);
    for (long held = argc > 1 ? atol(argv[1]) : 0; held > 0; held--)
        CHECK(alloc(&p, 256), 0);
    double start = seconds();
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(alloc(&p, 1 << 20), 0);
        CHECK(release(p), 0);
    }
    printf("%.1f ns\n", (seconds() - start) * 1e9 / ROUNDS);
    return 0;
}
