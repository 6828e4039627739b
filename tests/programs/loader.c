// SPDX-License-Identifier: Apache-2.0
// loader: a program that uses the dynamic loader in unusual ways.
//
//   loader semantics         looks functions up that are not the driver's, from the program and
//   from
//                            its libraries, and prints the result of each lookup: it must be equal
//                            with and without a preload
//   loader own               calls and looks up functions that have names of the driver's functions
//                            (loader-own has them), without a driver and with one
//   loader unload            loads and unloads the driver, and prints where its functions are found
//   loader drive NAME HOW    loads the driver by NAME, and allocates memory by commands on stdin.
//                            HOW finds the functions:
//                            plain        dlsym
//                            version      dlvsym if the driver has versions, else dlsym
//                            default      opens it RTLD_GLOBAL, then RTLD_DEFAULT
//                            deep         dlsym in a library opened with RTLD_DEEPBIND
//                            deepdefault  RTLD_DEFAULT in a library opened with RTLD_DEEPBIND
//                            namespace    the driver in a namespace of its own
//                            mixed        the context as plain, memory as deep
//                            oldest       as plain and version, by the functions of the loader that
//                                         programs for an old glibc are bound to
//                            again        opens libcuda.so.1 and libcuda.so first, and finds
//                                         functions in each
//              commands: "alloc BYTES" answers "alloc BYTES ok" or "err N"; "pid" answers the PID
#include "loader.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int plain_function(void);

static void show(const char *what, void *found) {
    const char *error = dlerror();
    if (found)
        printf("%s: %d%s\n", what, ((plain_function *)found)(), error ? ", and an error" : "");
    else
        printf("%s: %s\n", what, error ? error : "nothing, and no error");
}

// Opens a library in the program's folder.
static void *library(const char *name, int flags) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    while (length > 0 && path[length - 1] != '/')
        length--;
    snprintf(path + length, 32, "%s", name);
    return flags < 0 ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW) : dlopen(path, flags);
}

static void show_all(const char *name, void *third) {
    lookup_function *third_lookup = (lookup_function *)dlsym(third, "lookup3");
    printf("%s\n", name);
    show("program, next", dlsym(RTLD_NEXT, name));
    show("program, default", dlsym(RTLD_DEFAULT, name));
    show("program, itself", dlsym(dlopen(NULL, RTLD_NOW), name));
    show("first, next", lookup1(RTLD_NEXT, name));
    show("first, default", lookup1(RTLD_DEFAULT, name));
    show("second, next", lookup2(RTLD_NEXT, name));
    show("second, default", lookup2(RTLD_DEFAULT, name));
    show("third, next", third_lookup(RTLD_NEXT, name));
    show("third, default", third_lookup(RTLD_DEFAULT, name));
    show("third, its handle", third_lookup(third, name));
}

static void show_versions(void) {
    void *second = library("libloader2.so", RTLD_NOW);
    show("versioned", dlsym(second, "versioned"));
    static const char *const versions[] = {"LOADER_1", "LOADER_2", "LOADER_3"};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        show(versions[i], dlvsym(second, "versioned", versions[i]));
        show(versions[i], dlvsym(RTLD_DEFAULT, "versioned", versions[i]));
        show(versions[i], dlvsym(RTLD_NEXT, "versioned", versions[i]));
        show(versions[i], lookup_version1(RTLD_NEXT, "versioned", versions[i]));
        show(versions[i], lookup_version2(RTLD_NEXT, "versioned", versions[i]));
    }
}

static int semantics(void) {
    static const char *const names[] = {"whose", "cuWhose", "nobodys", "cuNobodys"};
    void *third = library("libloader3.so", RTLD_NOW);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        show_all(names[i], third);
    show_versions();
    void *apart = library("libloader3.so", -1);
    if (!apart)
        return printf("no namespace: %s\n", dlerror()), 1;
    Lmid_t id = LM_ID_BASE;
    dlinfo(apart, RTLD_DI_LMID, &id);
    printf("apart %d, another %d\n", id != LM_ID_BASE, apart != third);
    lookup_function *lookup = (lookup_function *)dlsym(apart, "lookup3");
    show("apart, its handle", dlsym(apart, "whose"));
    show("apart, default", lookup(RTLD_DEFAULT, "cuWhose"));
    fflush(stdout); // glibc before 2.33 ends a program that asks this
    show("apart, next", lookup(RTLD_NEXT, "cuWhose"));
    return 0;
}

#ifdef OWN
// The program exports it, so every other lookup finds it first.
int cuMemAlloc_v2(void);
int cuMemAlloc_v2(void) {
    return 42;
}

static int own(void) {
    static const char *const names[] = {"cuMemAlloc_v2", "cuMemAllocPitch"};
    void *third = library("libloader3-own.so", RTLD_NOW);
    lookup_function *third_lookup = (lookup_function *)dlsym(third, "lookup3");
    // Without a driver, only the libraries of the test have functions with these names.
    show("program, next", dlsym(RTLD_NEXT, names[0]));
    show("first, next", lookup1(RTLD_NEXT, names[0]));
    show("program, default the second", dlsym(RTLD_DEFAULT, names[1]));
    show("program, next the second", dlsym(RTLD_NEXT, names[1]));
    show("first, next the second", lookup1(RTLD_NEXT, names[1]));
    show("second, next the second", lookup2(RTLD_NEXT, names[1]));
    show("third, default the second", third_lookup(RTLD_DEFAULT, names[1]));
    show("third, default its own", third_lookup(RTLD_DEFAULT, "cuMemAllocManaged"));
    for (int with = 0; with < 2; with++) {
        printf("called: %d\n", cuMemAlloc_v2());
        show("program, default", dlsym(RTLD_DEFAULT, names[0]));
        show("program, itself", dlsym(dlopen(NULL, RTLD_NOW), names[0]));
        show("first, default", lookup1(RTLD_DEFAULT, names[0]));
        show("third, default", third_lookup(RTLD_DEFAULT, names[0]));
        show("third, its handle", dlsym(third, names[1]));
        if (!with && !dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
            return printf("no driver: %s\n", dlerror()), 1;
    }
    return 0;
}
#endif

// The driver

static void show_driver(const char *when) {
    static const char *const names[] = {"cuMemAlloc_v2", "cuInit"};
    void *loaded = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    printf("%s: %s\n", when, loaded ? "there" : "not there");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const void *own = dlsym(dlopen(NULL, RTLD_NOW), names[i]);
        printf("%s: default %d, next %d, itself %d\n", names[i],
               dlsym(RTLD_DEFAULT, names[i]) != NULL, dlsym(RTLD_NEXT, names[i]) != NULL,
               own != NULL);
    }
    if (loaded)
        dlclose(loaded);
}

static int unload(void) {
    show_driver("before");
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle || !dlsym(handle, "cuMemAlloc_v2"))
        return printf("no driver: %s\n", dlerror()), 1;
    show_driver("opened");
    dlclose(handle);
    show_driver("closed");
    return 0;
}

static void *driver;
static lookup_function *find_context, *find_memory;

static void *plain(void *handle, const char *name) {
    void *volatile found = dlsym(handle, name);
    return found;
}

static void *by_default(void *handle, const char *name) {
    (void)handle;
    return dlsym(RTLD_DEFAULT, name);
}

static void *by_version(void *handle, const char *name) {
    void *found = dlvsym(handle, name, "libcuda.so.1");
    return found ? found : dlsym(handle, name);
}

// Version of the symbols that programs for an old glibc are bound to.
#ifdef __aarch64__
#define OLDEST "GLIBC_2.17"
#else
#define OLDEST "GLIBC_2.2.5"
#endif
void *oldest_dlsym(void *handle, const char *name);
void *oldest_dlvsym(void *handle, const char *name, const char *version);
__asm__(".symver oldest_dlsym, dlsym@" OLDEST);
__asm__(".symver oldest_dlvsym, dlvsym@" OLDEST);

static void *by_oldest(void *handle, const char *name) {
    void *found = oldest_dlvsym(handle, name, "libcuda.so.1");
    return found ? found : oldest_dlsym(handle, name);
}

static lookup_function *deep;
static void *deep_by_default(void *handle, const char *name) {
    (void)handle;
    return deep(RTLD_DEFAULT, name);
}

// Opens the driver by its usual names, before it is opened by another name.
static bool open_before(void) {
    static const char *const names[] = {"libcuda.so.1", "libcuda.so"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (!handle || !dlsym(handle, "cuMemAlloc_v2"))
            return false;
    }
    return true;
}

static int prepare(const char *name, const char *how) {
    if (strcmp(how, "again") == 0 && !open_before())
        return fprintf(stderr, "loader: %s\n", dlerror()), 1;
    int flags = RTLD_NOW | (strstr(how, "default") ? RTLD_GLOBAL : RTLD_LOCAL);
    driver =
        strcmp(how, "namespace") == 0 ? dlmopen(LM_ID_NEWLM, name, RTLD_NOW) : dlopen(name, flags);
    void *bound = library("libloader3.so", RTLD_NOW | RTLD_DEEPBIND);
    if (!driver || !bound)
        return fprintf(stderr, "loader: %s\n", dlerror()), 1;
    deep = (lookup_function *)dlsym(bound, "lookup3");
    find_memory = strcmp(how, "version") == 0       ? by_version
                  : strcmp(how, "oldest") == 0      ? by_oldest
                  : strcmp(how, "default") == 0     ? by_default
                  : strcmp(how, "deepdefault") == 0 ? deep_by_default
                  : strcmp(how, "deep") == 0        ? deep
                  : strcmp(how, "mixed") == 0       ? deep
                                                    : plain;
    find_context = strcmp(how, "mixed") == 0 ? plain : find_memory;
    return 0;
}

static int drive(const char *name, const char *how) {
    if (prepare(name, how) != 0)
        return 1;
    int (*init)(unsigned) = (int (*)(unsigned))find_context(driver, "cuInit");
    int (*create)(void **, unsigned, int) =
        (int (*)(void **, unsigned, int))find_context(driver, "cuCtxCreate_v2");
    int (*allocate)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))find_memory(driver, "cuMemAlloc_v2");
    void *context;
    if (!init || !create || !allocate || init(0) != 0 || create(&context, 0, 0) != 0)
        return fprintf(stderr, "loader: no context\n"), 1;
    printf("ready\n");
    fflush(stdout);
    char line[128];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long address;
        size_t size = strtoull(line + strcspn(line, " \n"), NULL, 10);
        int result = size ? allocate(&address, size) : 0;
        if (strncmp(line, "pid", 3) == 0)
            printf("pid ok %d\n", getpid());
        else if (result == 0)
            printf("alloc %zu ok\n", size);
        else
            printf("alloc %zu err %d\n", size, result);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "semantics") == 0)
        return semantics();
    if (argc == 2 && strcmp(argv[1], "unload") == 0)
        return unload();
#ifdef OWN
    if (argc == 2 && strcmp(argv[1], "own") == 0)
        return own();
#endif
    if (argc == 4 && strcmp(argv[1], "drive") == 0)
        return drive(argv[2], argv[3]);
    fprintf(stderr, "usage: loader semantics|own|unload|drive NAME HOW\n");
    return 2;
}
