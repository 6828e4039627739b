// SPDX-License-Identifier: Apache-2.0
// Keeps freed memory as PyTorch's allocator does: a freed block goes into a cache. A request is
// taken from the driver; if the driver has no memory, the cache is freed, and the driver is asked
// once more. Reads commands, one a line, and answers each with one line:
//
//   load FILE    loads a library
//   plain        frees no cache and asks no second time from now on
//   take SIZE    takes SIZE MiB; "took", "took again" after the cache was freed, or "err CODE"
//   give         puts the block that was taken last into the cache
//   empty        frees the cache
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t address;
static int (*alloc)(address *, size_t);
static int (*release)(address);

static address cache[64], taken[64];
static int cached, held;

static const char *empty(void) {
    while (cached > 0)
        release(cache[--cached]);
    return "emptied";
}

static const char *take(size_t bytes, bool plain) {
    static char text[32];
    int status = alloc(&taken[held], bytes);
    if (status == 2 && !plain) {
        empty();
        status = alloc(&taken[held], bytes);
        if (status == 0)
            return held++, "took again";
    }
    if (status == 0)
        return held++, "took";
    snprintf(text, sizeof text, "err %d", status);
    return text;
}

static void *driver(const char *name) {
    static void *library;
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}

int main(void) {
    char line[4096];
    bool plain = false;
    void *context;
    int (*init)(unsigned) = (int (*)(unsigned))driver("cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))driver("cuDevicePrimaryCtxRetain");
    int (*make_current)(void *) = (int (*)(void *))driver("cuCtxSetCurrent");
    alloc = (int (*)(address *, size_t))driver("cuMemAlloc_v2");
    release = (int (*)(address))driver("cuMemFree_v2");
    if (!init || init(0) || retain(&context, 0) || make_current(context))
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "load ", 5) == 0)
            puts(dlopen(line + 5, RTLD_NOW) ? "loaded" : dlerror());
        else if (strcmp(line, "plain") == 0)
            puts((plain = true) ? "plain now" : "");
        else if (strncmp(line, "take ", 5) == 0)
            puts(take((size_t)atol(line + 5) << 20, plain));
        else if (strcmp(line, "give") == 0)
            puts((cache[cached++] = taken[--held]) ? "given" : "");
        else if (strcmp(line, "empty") == 0)
            puts(empty());
    }
    return 0;
}
