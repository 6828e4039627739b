// SPDX-License-Identifier: Apache-2.0
//
// Modules and libraries by every way, local memory that launches grow, the device heap and the
// buffer for printf: what they cost, and that it comes back.

#include "testlib.h"

#include <stdint.h>

#define MIB ((size_t)1 << 20)
typedef uintptr_t handle;

static const char image[] = "simcuda module 1\ncode 3M\nglobal table 512M\nkernel deep 2K\n";

static size_t used(void) {
    static size_t first;
    size_t room, total;
    CHECK(cuMemGetInfo(&room, &total), 0);
    if (!first)
        first = room;
    return first - room;
}

#define load CU(cuModuleLoadData, handle *, const void *)
#define unload CU(cuModuleUnload, handle)
#define function CU(cuModuleGetFunction, handle *, handle, const char *)
#define global CU(cuModuleGetGlobal_v2, CUdeviceptr *, size_t *, handle, const char *)
#define launch                                                                                     \
    CU(cuLaunchKernel, handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,         \
       unsigned, CUstream, void **, void **)

static void modules(void) {
    handle m = 0, f = 0;
    CUdeviceptr p = 0;
    size_t bytes = 0;
    int data = 7, back = 0;
    CHECK(load(&m, NULL), 1);
    CHECK(load(NULL, image), 1);
    CHECK(load(&m, "nonsense that is no image"), 200);
    CHECK(load(&m, "simcuda module 1\nglobal x\n"), 200);
    CHECK(load(&m, "\177ELF and so on"), 801);
    CHECK(CU(cuModuleLoad, handle *, const char *)(&m, "/nowhere"), 301);
    CHECK(load(&m, "simcuda module 1\nglobal x 1T\n"), 2);
    CHECK(used(), 0);
    CHECK(load(&m, image), 0);
    CHECK(used(), 515 * MIB);
    CHECK(global(&p, &bytes, m, "nothing"), 500);
    CHECK(global(&p, &bytes, m, "table"), 0);
    CHECK(bytes, 512 * MIB);
    CHECK(cuMemFree(p), 1);
    CHECK(cuMemcpyHtoD(p, &data, sizeof data), 0);
    CHECK(cuMemcpyDtoH(&back, p, sizeof back), 0);
    CHECK(back, data);
    CHECK(function(&f, m, "nothing"), 500);
    CHECK(function(&f, m, "deep"), 0);
    CHECK(launch(f, 1, 1, 1, 0, 1, 1, 0, 0, NULL, NULL), 1);
    CHECK(launch(m, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL), 400);
    CHECK(launch(f, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL), 0);
    CHECK(used(), (515 + 128) * MIB);
    CHECK(unload(m), 0);
    CHECK(unload(m), 400);
    CHECK(launch(f, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL), 400);
    CHECK(used(), 128 * MIB); // local memory stays
}

static void libraries(void) {
    handle l = 0, m = 0;
    CUdeviceptr p = 0;
    size_t before = used();
    CHECK(CU(cuLibraryLoadData, handle *, const void *, int *, void **, unsigned, int *, void **,
             unsigned)(&l, image, NULL, NULL, 0, NULL, NULL, 0),
          0);
    CHECK(used() - before, 515 * MIB);
    CHECK(CU(cuLibraryGetModule, handle *, handle)(&m, l), 0);
    CHECK(unload(m), 800);
    CHECK(
        CU(cuLibraryGetGlobal, CUdeviceptr *, size_t *, handle, const char *)(&p, NULL, l, "table"),
        0);
    CHECK(used() - before, 515 * MIB);
    CHECK(CU(cuLibraryUnload, handle)(l), 0);
    CHECK(CU(cuLibraryUnload, handle)(l), 400);
    CHECK(used(), before);
}

static void lazy(void) {
    handle m = 0;
    size_t before = used();
    CHECK(setenv("CUDA_MODULE_LOADING", "LAZY", 1), 0);
    CHECK(load(&m, image), 0);
    CHECK(used(), before);
    CHECK(global(NULL, NULL, m, "table"), 0);
    CHECK(used() - before, 515 * MIB);
    CHECK(unload(m), 0);
    CHECK(unsetenv("CUDA_MODULE_LOADING"), 0);
}

static void limits(void) {
    size_t before = used(), value = 0;
    CHECK(CU(cuCtxSetLimit, int, size_t)(2, 264 * MIB), 0);
    CHECK(used() - before, 256 * MIB);
    CHECK(CU(cuCtxGetLimit, size_t *, int)(&value, 2), 0);
    CHECK(value, 264 * MIB);
    CHECK(CU(cuCtxSetLimit, int, size_t)(2, (size_t)1 << 40), 2);
    CHECK(CU(cuCtxSetLimit, int, size_t)(1, 101 * MIB), 0);
    CHECK(used() - before, 356 * MIB);
    CHECK(CU(cuCtxSetLimit, int, size_t)(2, 8 * MIB), 0);
    CHECK(used() - before, 100 * MIB);
}

// As the runtime does.
static void table(void) {
    static const unsigned char id[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                         0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
    struct {
        unsigned magic, version;
        const void *data, *more;
    } wrapper = {0x466243b1, 1, image, NULL};
    const void *tables = NULL;
    handle m = 0;
    size_t before = used();
    CHECK(CU(cuGetExportTable, const void **, const void *)(&tables, id), 0);
    CUresult (*get)(handle *, const void *) =
        (CUresult(*)(handle *, const void *))((void *const *)tables)[1];
    CHECK(get(&m, &wrapper), 0);
    CHECK(used() - before, 515 * MIB);
    wrapper.magic = 0;
    CHECK(get(&m, &wrapper), 1);
}

int main(void) {
    CUcontext c = open_device(0);
    CHECK(used(), 0);
    modules();
    libraries();
    lazy();
    limits();
    table();
    CHECK(cuCtxDestroy(c), 0);
    return 0;
}
