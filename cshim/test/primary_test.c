// SPDX-License-Identifier: Apache-2.0
// primary_test: the cost of a retain and a release of a primary context that stays active. Linked
// with ga_table_walk wrapped (-Wl,--wrap), on the simulated driver (DRIVER is its path), without a
// daemon.
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "core/root.h"
#include "cuda/driver.h"
#include "cuda/hooks.h"
#include "hook/library.h"

#ifndef DRIVER
#define DRIVER "libcuda.so.1"
#endif

extern GA_FN_cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRetain;
extern GA_FN_cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRelease_v2;
extern GA_FN_cuMemAlloc_v2 cuMemAlloc_v2;
extern GA_FN_cuCtxSetCurrent cuCtxSetCurrent;

const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0"; // the simulated driver keeps the records of contexts that have ended
}

// Number of walks over a whole table, whose cost grows with the number of entries.
static _Atomic long walks;

struct ga_walk __real_ga_table_walk(struct ga_table *);
struct ga_walk __wrap_ga_table_walk(struct ga_table *);

struct ga_walk __wrap_ga_table_walk(struct ga_table *t) {
    atomic_fetch_add(&walks, 1);
    return __real_ga_table_walk(t);
}

static long blocks(void) {
    long n = 0;
    struct ga_entry e;
    struct ga_walk walk = __real_ga_table_walk(&ga_root_get()->blocks);
    while (ga_table_next(&walk, &e))
        n++;
    return n;
}

static void pairs(int times) {
    ga_context context;
    for (int i = 0; i < times; i++)
        CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuDevicePrimaryCtxRelease_v2(0) == 0);
}

int main(void) {
    char folder[] = "/tmp/gpuarb-primary-XXXXXX", command[64];
    ga_context context;
    ga_address p;
    CHECK(mkdtemp(folder));
    setenv("SIMCUDA_DIR", folder, 1);
    setenv("GPUARB_SOCKET", "/nonexistent/gpuarb.sock", 1);
    CHECK(dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL) && ga_library_find(&ga_cuda_interface, NULL));
    CHECK(GA_REAL(cuInit)(0) == 0);
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
    for (int i = 0; i < 1000; i++)
        CHECK(cuMemAlloc_v2(&p, 512) == 0);
    CHECK(blocks() == 1000);
    walks = 0;
    pairs(100);
    CHECK(walks == 0 && blocks() == 1000);
    // A retain that the library does not see, by a table of the driver's functions, as runtimes do.
    CHECK(GA_REAL(cuDevicePrimaryCtxRetain)(&context, 0) == 0);
    CHECK(cuDevicePrimaryCtxRelease_v2(0) == 0); // the last retain that the library saw
    CHECK(blocks() == 1000);
    walks = 0;
    pairs(100);
    CHECK(walks == 0 && blocks() == 1000);
    // A release that the library does not see. The next release that ends the context finds that
    // its blocks are gone.
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0);
    CHECK(GA_REAL(cuDevicePrimaryCtxRelease_v2)(0) == 0);
    CHECK(blocks() == 1000);
    CHECK(cuDevicePrimaryCtxRelease_v2(0) == 0);
    CHECK(blocks() == 0 && walks > 0);
    // The last release that the library sees also finds this.
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
    CHECK(cuMemAlloc_v2(&p, 512) == 0 && blocks() == 1);
    CHECK(cuDevicePrimaryCtxRelease_v2(0) == 0 && blocks() == 0);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    return 0;
}
