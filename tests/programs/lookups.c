// SPDX-License-Identifier: Apache-2.0
// lookups: checks how driver functions are found under the preload. Prints "WHAT ok" or "WHAT: why
// not". A function is the wrapper if it lies in libgpuarb.so, and the driver's if it lies in
// libcuda.
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int gpa_v1(const char *, void **, int, uint64_t);
typedef int gpa_v2(const char *, void **, int, uint64_t, int *);

static const char *home(void *p) {
    Dl_info info;
    if (!p)
        return "nowhere";
    if (!dladdr(p, &info))
        return "unknown";
    return strstr(info.dli_fname, "libgpuarb") ? "shim"
           : strstr(info.dli_fname, "libcuda") ? "driver"
                                               : info.dli_fname;
}

// Returns the name of the function that begins exactly at p.
static const char *exact(void *p) {
    Dl_info info;
    return p && dladdr(p, &info) && info.dli_sname && info.dli_saddr == p ? info.dli_sname : "-";
}

static void check(const char *what, void *p, const char *where, const char *name) {
    bool ok = strcmp(home(p), where) == 0 && (!name || strcmp(exact(p), name) == 0);
    if (ok)
        printf("%s ok\n", what);
    else
        printf("%s: %s in %s, want %s in %s\n", what, exact(p), home(p), name ? name : "any",
               where);
}

int main(void) {
    // Before a driver is loaded, none of its functions may be found.
    check("RTLD_DEFAULT without a driver", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), "nowhere", NULL);
    check("RTLD_NEXT without a driver", dlsym(RTLD_NEXT, "cuMemAlloc_v2"), "nowhere", NULL);
    const char *error = dlerror();
    printf("dlerror %s\n", error && strstr(error, "cuMemAlloc_v2") ? "ok" : "is silent");

    void *h = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!h)
        return printf("no driver: %s\n", dlerror()), 1;
    gpa_v2 *v2 = (gpa_v2 *)dlsym(h, "cuGetProcAddress_v2");
    gpa_v1 *v1 = (gpa_v1 *)dlsym(h, "cuGetProcAddress");
    check("dlsym cuGetProcAddress_v2", (void *)v2, "shim", "cuGetProcAddress_v2");
    check("dlsym cuGetProcAddress", (void *)v1, "shim", "cuGetProcAddress");
    check("dlsym cuMemAlloc_v2", dlsym(h, "cuMemAlloc_v2"), "shim", "cuMemAlloc_v2");
    check("dlsym cuMemAlloc", dlsym(h, "cuMemAlloc"), "shim", "cuMemAlloc");
    check("dlsym cuMemAllocAsync_ptsz", dlsym(h, "cuMemAllocAsync_ptsz"), "shim",
          "cuMemAllocAsync_ptsz");
    check("dlsym of what is not wrapped", dlsym(h, "cuDriverGetVersion"), "driver",
          "cuDriverGetVersion");
    check("dlsym twice", dlsym(h, "cuMemAlloc_v2"), "shim", "cuMemAlloc_v2");
    check("dlsym of what is not there", dlsym(h, "cuNoSuchThing"), "nowhere", NULL);
    check("RTLD_DEFAULT", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), "shim", "cuMemAlloc_v2");
    check("RTLD_NEXT", dlsym(RTLD_NEXT, "cuMemAlloc_v2"), "shim", "cuMemAlloc_v2");
    check("the program's handle", dlsym(dlopen(NULL, RTLD_NOW), "cuMemFree_v2"), "shim",
          "cuMemFree_v2");
    check("a libc function", dlsym(RTLD_DEFAULT, "strlen"), home((void *)&strcmp), NULL);

    static const struct {
        const char *name;
        int version;
        uint64_t flags;
        const char *where, *want;
    } rows[] = {
        {"cuMemAlloc", 2000, 0, "shim", "cuMemAlloc"},
        {"cuMemAlloc", 3020, 0, "shim", "cuMemAlloc_v2"},
        {"cuMemAlloc", 12000, 2, "shim", "cuMemAlloc_v2"},
        {"cuMemAllocAsync", 11020, 0, "shim", "cuMemAllocAsync"},
        {"cuMemAllocAsync", 11020, 2, "shim", "cuMemAllocAsync_ptsz"},
        {"cuCtxCreate", 3020, 0, "shim", "cuCtxCreate_v2"},
        {"cuCtxCreate", 11040, 0, "shim", "cuCtxCreate_v3"},
        {"cuCtxCreate", 12050, 0, "shim", "cuCtxCreate_v4"},
        {"cuGetProcAddress", 11030, 0, "shim", "cuGetProcAddress"},
        {"cuGetProcAddress", 12000, 0, "shim", "cuGetProcAddress_v2"},
        {"cuDevicePrimaryCtxRelease", 7000, 0, "shim", "cuDevicePrimaryCtxRelease"},
        {"cuDriverGetVersion", 2020, 0, "driver", "cuDriverGetVersion"},
        {"cuMemAlloc_v2", 12000, 0, "nowhere", NULL},
        {"", 0, 0, "nowhere", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char what[80];
        void *p = NULL;
        int status = -1;
        int result = v2(rows[i].name, &p, rows[i].version, rows[i].flags, &status);
        snprintf(what, sizeof what, "GPA2 %s %d %d (%d, %d)", rows[i].name, rows[i].version,
                 (int)rows[i].flags, result, status);
        check(what, p, rows[i].where, rows[i].want);
        p = NULL;
        v2(rows[i].name, &p, rows[i].version, rows[i].flags, NULL);
        check("the same without status", p, rows[i].where, rows[i].want);
        void *untouched = &what, *q = untouched;
        result = v1(rows[i].name, &q, rows[i].version, rows[i].flags);
        snprintf(what, sizeof what, "GPA1 %s %d (%d)", rows[i].name, rows[i].version, result);
        if (rows[i].want)
            check(what, q, rows[i].where, rows[i].want);
        else
            printf("%s %s\n", what, result == 500 && q == untouched ? "ok" : "is wrong");
    }
    return 0;
}
