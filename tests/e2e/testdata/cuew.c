// SPDX-License-Identifier: Apache-2.0
// A loader of the driver in the style of cuew, which Blender has: variables with the names of the
// driver's functions, exported by a library.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

int (*cuInit)(unsigned flags);
int (*cuCtxCreate_v2)(void **context, unsigned flags, int device);
int (*cuMemAlloc_v2)(uint64_t *address, size_t bytes);

int cuew_alloc(size_t bytes);
int cuew_alloc(size_t bytes) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    uint64_t address;
    if (!library)
        return -1;
    *(void **)&cuInit = dlsym(library, "cuInit");
    *(void **)&cuCtxCreate_v2 = dlsym(library, "cuCtxCreate_v2");
    *(void **)&cuMemAlloc_v2 = dlsym(library, "cuMemAlloc_v2");
    if (cuInit(0) != 0 || cuCtxCreate_v2(&context, 0, 0) != 0)
        return -2;
    return cuMemAlloc_v2(&address, bytes);
}
