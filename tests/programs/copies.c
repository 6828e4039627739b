// SPDX-License-Identifier: Apache-2.0
// copies: a program that uses several copies of a driver's library, each opened by its path, as
// programs do that try every file with the library's name. It reads commands from stdin, and
// answers each with the command and "ok" or "err N". X is a letter that names a copy:
//
//   open X PATH     opens a copy, by path or by name
//   find X dlsym    finds its functions, each by dlsym
//   find X gpa      finds cuGetProcAddress by dlsym, and all others by cuGetProcAddress
//   init X          cuInit
//   context X       makes a context on device 0
//   alloc X BYTES   allocates memory; free X frees the latest block
//   room X          cuMemGetInfo: "room X ok TOTAL"
//   close X
//   link            allocates memory through copieslink.so, a plug-in that is linked with -lcuda
//   nvml X PATH     opens and initialises an NVML: "nvml X ok TOTAL", the memory of device 0
//   pid             "pid ok PID"
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct copy {
    void *library;
    int (*init)(unsigned);
    int (*create)(void **, unsigned, int);
    int (*set)(void *);
    int (*alloc)(uint64_t *, size_t);
    int (*free)(uint64_t);
    int (*info)(size_t *, size_t *);
    void *context;
    uint64_t last;
};
static struct copy copies[26];

typedef int resolver(const char *, void **, int, uint64_t, int *);

static int find(struct copy *c, const char *how) {
    static const char *const exported[] = {"cuInit",        "cuCtxCreate_v2", "cuCtxSetCurrent",
                                           "cuMemAlloc_v2", "cuMemFree_v2",   "cuMemGetInfo_v2"};
    static const char *const names[] = {"cuInit",     "cuCtxCreate", "cuCtxSetCurrent",
                                        "cuMemAlloc", "cuMemFree",   "cuMemGetInfo"};
    void *found[6] = {0};
    resolver *resolve = (resolver *)dlsym(c->library, "cuGetProcAddress_v2");
    for (int i = 0; i < 6; i++) {
        if (strcmp(how, "gpa") != 0)
            found[i] = dlsym(c->library, exported[i]);
        else if (!resolve || resolve(names[i], &found[i], 11000, 0, NULL) != 0)
            return resolve ? resolve(names[i], &found[i], 11000, 0, NULL) : -1;
        if (!found[i])
            return -1;
    }
    *(void **)&c->init = found[0];
    *(void **)&c->create = found[1];
    *(void **)&c->set = found[2];
    *(void **)&c->alloc = found[3];
    *(void **)&c->free = found[4];
    *(void **)&c->info = found[5];
    return 0;
}

static int by_link(void) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    if (length < 0)
        return -1;
    snprintf(path + length, 32, "link.so");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*alloc)(size_t) = library ? (int (*)(size_t))dlsym(library, "link_alloc") : NULL;
    return alloc ? alloc(1 << 20) : (fprintf(stderr, "copies: %s\n", dlerror()), -1);
}

static int nvml(struct copy *c, const char *path, unsigned long long *total) {
    void *library = c->library ? c->library : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct {
        unsigned long long total, free, used;
    } memory = {0, 0, 0};
    void *device = NULL;
    c->library = library;
    int (*init)(void) = library ? (int (*)(void))dlsym(library, "nvmlInit_v2") : NULL;
    if (!init)
        return -1;
    int (*get)(unsigned, void **) =
        (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    int (*ask)(void *, void *) = (int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo");
    int result = init();
    if (result == 0)
        result = get(0, &device);
    if (result == 0)
        result = ask(device, &memory);
    *total = memory.total;
    return result;
}

static int run(const char *what, struct copy *c, const char *argument, unsigned long long *value) {
    if (strcmp(what, "open") == 0)
        return (c->library = dlopen(argument, RTLD_NOW | RTLD_LOCAL)) ? 0 : -1;
    if (strcmp(what, "find") == 0)
        return find(c, argument);
    if (strcmp(what, "init") == 0)
        return c->init(0);
    if (strcmp(what, "context") == 0)
        return c->create(&c->context, 0, 0);
    if (strcmp(what, "alloc") == 0) {
        int result = c->set(c->context);
        return result ? result : c->alloc(&c->last, strtoull(argument, NULL, 10));
    }
    if (strcmp(what, "free") == 0)
        return c->free(c->last);
    if (strcmp(what, "room") == 0) {
        size_t room = 0, total = 0;
        int result = c->info(&room, &total);
        *value = total;
        return result;
    }
    if (strcmp(what, "close") == 0) {
        int result = dlclose(c->library);
        memset(c, 0, sizeof *c);
        return result;
    }
    if (strcmp(what, "nvml") == 0)
        return nvml(c, argument, value);
    return strcmp(what, "link") == 0 ? by_link() : -2;
}

int main(void) {
    char line[4200], what[16], argument[4096];
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        char letter = 'a';
        unsigned long long value = 0;
        argument[0] = '\0';
        int words = sscanf(line, "%15s %c %4095s", what, &letter, argument);
        if (words < 1 || letter < 'a' || letter > 'z')
            return fprintf(stderr, "copies: %s", line), 2;
        bool asks_pid = strcmp(what, "pid") == 0;
        int result = asks_pid ? 0 : run(what, &copies[letter - 'a'], argument, &value);
        value = asks_pid ? (unsigned long long)getpid() : value;
        printf(words > 1 ? "%s %c " : "%s ", what, letter);
        if (result != 0)
            printf("err %d\n", result);
        else if (value)
            printf("ok %llu\n", value);
        else
            printf("ok\n");
        fflush(stdout);
    }
    return 0;
}
