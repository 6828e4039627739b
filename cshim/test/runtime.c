// SPDX-License-Identifier: Apache-2.0
// runtime [SHIM]: a program linked with the CUDA runtime. It prints what the runtime asked of the
// driver, what the runtime got, and the results of the runtime's calls:
//
//   dlsym NAME WHAT
//   asked NAME VERSION FLAGS RESULT WHAT
//   call NAME RESULT
//
// WHAT is a symbol and its library ("shim" or "driver"), or "-" for NULL. The program's own dlsym
// comes before that of the library, whose path is the argument, and passes on its answers.
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *lookup(void *, const char *);
typedef int resolver_v1(const char *, void **, int, uint64_t);
typedef int resolver_v2(const char *, void **, int, uint64_t, int *);

int cudaGetDeviceCount(int *count);
int cudaSetDevice(int device);
int cudaMemGetInfo(size_t *available, size_t *total);
int cudaMalloc(void **pointer, size_t size);
int cudaFree(void *pointer);
int cudaDeviceReset(void);

void *dlsym(void *restrict handle, const char *restrict name);

static lookup *next;
static resolver_v1 *v1;
static resolver_v2 *v2;

// The next dlsym is libc's, which has a version, or the library's, which has none.
static void find_next(const char *shim) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (size_t i = 0; !next && i < sizeof versions / sizeof *versions; i++)
        *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (!next)
        abort();
    if (!shim)
        return;
    void *handle = dlopen(shim, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle || !(*(void **)&next = next(handle, "dlsym")))
        abort();
}

static int asked_v1(const char *name, void **out, int version, uint64_t flags);
static int asked_v2(const char *name, void **out, int version, uint64_t flags, int *status);

// Prints the answer. If the symbol is a resolver, returns our own in its place.
static void *found(void *p) {
    Dl_info info;
    if (!p || !dladdr(p, &info) || !info.dli_sname) {
        puts(p ? " nowhere" : " -");
        return p;
    }
    printf(" %s:%s\n", strstr(info.dli_fname, "libgpuarb") ? "shim" : "driver", info.dli_sname);
    if (strcmp(info.dli_sname, "cuGetProcAddress") == 0) {
        *(void **)&v1 = p;
        return (void *)asked_v1;
    }
    if (strcmp(info.dli_sname, "cuGetProcAddress_v2") == 0) {
        *(void **)&v2 = p;
        return (void *)asked_v2;
    }
    return p;
}

static int answer(const char *name, void **out, int version, uint64_t flags, int result) {
    printf("asked %s %d %" PRIu64 " %d", name, version, flags, result);
    if (result == 0)
        *out = found(*out);
    else
        puts(" -");
    return result;
}

static int asked_v1(const char *name, void **out, int version, uint64_t flags) {
    return answer(name, out, version, flags, v1(name, out, version, flags));
}

static int asked_v2(const char *name, void **out, int version, uint64_t flags, int *status) {
    return answer(name, out, version, flags, v2(name, out, version, flags, status));
}

__attribute__((visibility("default"))) void *dlsym(void *restrict handle,
                                                   const char *restrict name) {
    if (!next)
        find_next(NULL);
    void *p = next(handle, name);
    if (strncmp(name, "cu", 2) != 0)
        return p;
    printf("dlsym %s", name);
    return found(p);
}

int main(int argc, char **argv) {
    int count = 0;
    size_t available = 0;
    size_t total = 0;
    void *block = NULL;
    find_next(argc > 1 ? argv[1] : NULL);
    printf("call cudaGetDeviceCount %d\n", cudaGetDeviceCount(&count));
    printf("call cudaSetDevice %d\n", cudaSetDevice(0));
    printf("call cudaMemGetInfo %d\n", cudaMemGetInfo(&available, &total));
    printf("call cudaMalloc %d\n", cudaMalloc(&block, 1 << 20));
    printf("call cudaFree %d\n", cudaFree(block));
    printf("call cudaDeviceReset %d\n", cudaDeviceReset());
    return 0;
}
