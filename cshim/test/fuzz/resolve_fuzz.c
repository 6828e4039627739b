// SPDX-License-Identifier: Apache-2.0
// Fuzz target of the resolver, for any name, version and flags. It must answer what the driver
// answers, with the wrapper of exactly that function in its place. DRIVER is the path of a driver.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"
#include "cuda/hooks.h"
#include "hook/library.h"
#include "hook/resolve.h"

#ifndef DRIVER
#define DRIVER "libcuda.so.1"
#endif
#define CHECK(condition) ((condition) ? (void)0 : abort())
enum { HEAD = 8, NAME = 4096 };

// Functions of the library.
GA_FN_cuGetProcAddress cuGetProcAddress;
GA_FN_cuGetProcAddress_v2 cuGetProcAddress_v2;

static void *driver;
static GA_FN_cuGetProcAddress *v1;
static GA_FN_cuGetProcAddress_v2 *v2;
static char untouched;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    CHECK(driver && ga_library_find(&ga_cuda_interface, NULL));
    v1 = (GA_FN_cuGetProcAddress *)dlsym(driver, "cuGetProcAddress");
    v2 = (GA_FN_cuGetProcAddress_v2 *)dlsym(driver, "cuGetProcAddress_v2");
    CHECK(v1 && v2);
    return 0;
}

// Returns what a program must get if the driver answers with p. It takes this from the list of
// rows, not from the library's own look-up. For cuInit it is the wrapper of the copy that the
// program asked.
static void *expected(void *p) {
    if (p && p == dlsym(driver, "cuInit"))
        return ga_cuda_interface.of_copy(GA_ROW_cuInit, 0);
#define GA_NEED(symbol, parameters)
#define GA_HOOK(symbol, class, bytes, parameters, arguments, ...)                                  \
    if (p && p == dlsym(driver, #symbol))                                                          \
        return ga_cuda_interface.wrapper(GA_ROW_##symbol);
#include "cuda/hooks.def"
#undef GA_HOOK
#undef GA_NEED
    return p;
}

// Makes a name: a row's, cut and extended, or arbitrary bytes.
static void make_name(char *name, const uint8_t *head, const uint8_t *data, size_t size) {
    size_t length = 0;
    if (head[6] % 4) {
        const char *row =
            ga_library_name(&ga_cuda_interface, (size_t)(head[6] >> 2 | head[7] << 6) % GA_ROWS);
        length = strlen(row);
        memcpy(name, row, length);
        length -= head[6] % 4 == 2 && length > 3 ? 3 : 0; // without its version
    }
    size = size < NAME - length ? size : NAME - length - 1;
    memcpy(name + length, data, size);
    name[length + size] = 0;
}

static void ask_v1(const char *name, int version, uint64_t flags) {
    void *bare = &untouched, *found = &untouched;
    ga_result want = v1(name, &bare, version, flags);
    CHECK(cuGetProcAddress(name, &found, version, flags) == want);
    CHECK(found == expected(bare));
}

static void ask_v2(const char *name, int version, uint64_t flags, bool quiet) {
    void *bare = &untouched, *found = &untouched;
    int status = 77, seen = 77;
    ga_result want = v2(name, &bare, version, flags, quiet ? NULL : &status);
    CHECK(cuGetProcAddress_v2(name, &found, version, flags, quiet ? NULL : &seen) == want);
    CHECK(found == expected(bare) && seen == status);
}

// Compares a look-up by dlsym or dlvsym in the driver's handle. ga_resolve_decide returns NULL if
// libc's own function must answer: always if the library asks, else only if no wrapper is needed.
static void look_up(const char *name, const char *version, const void *caller) {
    void *bare = version ? dlvsym(driver, name, version) : dlsym(driver, name);
    void *found = ga_resolve_decide(driver, name, version, caller);
    if (ga_library_contains(&ga_cuda_interface, caller))
        CHECK(found == NULL);
    else if (found == NULL)
        CHECK(bare == expected(bare));
    else
        CHECK(found == (bare ? expected(bare) : GA_RESOLVE_NOTHING) || (!bare && !found));
}

// A function of another library is never translated, whatever handle is searched.
static void look_around(const char *name, void *handle) {
    void *found = ga_resolve_decide(handle, name, NULL, (const void *)&look_around);
    if (found && found != GA_RESOLVE_NOTHING)
        CHECK(found == expected(dlsym(driver, name)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char name[NAME];
    int version;
    if (size < HEAD)
        return 0;
    memcpy(&version, data + 2, sizeof version);
    make_name(name, data, data + HEAD, size - HEAD);
    if (data[1] & 0x80)
        version = 1000 * (version & 31) + 10 * (data[3] & 15);
    uint64_t flags = data[1] & 0x40 ? UINT64_C(1) << (data[1] & 63) : data[1] & 7;
    switch (data[0] % 7) {
    case 0:
        ask_v1(name, version, flags);
        break;
    case 1:
    case 2:
        ask_v2(name, version, flags, data[0] % 7 == 1);
        break;
    case 3:
        look_up(name, NULL, (const void *)&look_up);
        break;
    case 4:
        look_up(name, data[0] & 0x40 ? "libcuda.so.1" : "GLIBC_2.2.5", (const void *)&look_up);
        break;
    case 5:
        look_up(name, NULL, (const void *)v1);
        break;
    default:
        look_around(name, data[0] & 0x40 ? RTLD_DEFAULT : RTLD_NEXT);
    }
    return 0;
}
