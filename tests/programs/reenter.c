// SPDX-License-Identifier: Apache-2.0
// A driver that calls its own functions through the global scope, because it is linked without
// -Bsymbolic: by a call, by a jump, and by dlsym. It has the functions that one program needs, and
// endless memory.
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static unsigned long long next = 0x10000000;
static __thread void *current;

int cuInit(unsigned flags) {
    return flags ? 1 : 0;
}
int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}
int cuDeviceGetUuid(unsigned char *uuid, int device) {
    memset(uuid, 0x5a, 16);
    return device;
}

int cuCtxCreate(void **context, unsigned flags, int device) {
    *context = current = (void *)&next;
    return flags ? 1 : device;
}
// A jump.
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    return cuCtxCreate(context, flags, device);
}
int cuCtxGetCurrent(void **context) {
    *context = current;
    return 0;
}
int cuCtxGetDevice(int *device) {
    *device = 0;
    return current ? 0 : 201;
}

int cuMemAllocPitch_v2(unsigned long long *at, size_t *pitch, size_t width, size_t height,
                       unsigned element) {
    *at = next;
    next += width * height + 512;
    *pitch = width;
    return element == 4 ? 0 : 1;
}
// A call.
int cuMemAllocManaged(unsigned long long *at, size_t bytes, unsigned flags) {
    size_t pitch = 0;
    int result = cuMemAllocPitch_v2(at, &pitch, bytes, 1, 4);
    return flags == 1 && pitch == bytes ? result : 1;
}
int cuMemAlloc(unsigned *at, unsigned bytes) {
    unsigned long long found = 0;
    int result = cuMemAllocManaged(&found, bytes, 1);
    *at = (unsigned)found;
    return result;
}
// Calls by dlsym, as code that does not know its own library.
int cuMemAllocAsync(unsigned long long *at, size_t bytes, void *stream) {
    unsigned low = 0;
    int (*older)(unsigned *, unsigned) =
        (int (*)(unsigned *, unsigned))dlsym(RTLD_DEFAULT, "cuMemAlloc");
    int result = older ? older(&low, (unsigned)bytes) : 3;
    *at = low;
    return stream ? 1 : result;
}
// A jump.
int cuMemAlloc_v2(unsigned long long *at, size_t bytes) {
    return cuMemAllocAsync(at, bytes, NULL);
}
int cuMemFree_v2(unsigned long long at) {
    return at ? 0 : 1;
}
