// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for memory that no call names. SIZE is that of a variable in a simulated
// module; LOCAL is its kernel's local memory for each thread:
//
//   load NAME SIZE [LOCAL]       cuModuleLoadData;   loadex, loadfat, loadfile: the others
//   loadtable NAME SIZE [LOCAL]  by the driver's private table, as the CUDA runtime does
//   loadthreads N SIZE           N threads load one each at the same time: how many are granted,
//                                and how many refused
//   unload NAME                  cuModuleUnload
//   loadlibrary NAME SIZE        cuLibraryLoadData;   loadlibraryfile;   unloadlibrary NAME
//   global NEW MODULE            the address of its variable
//   run MODULE                   its kernel, and waits for it
//   setlimit N SIZE; getlimit N  cuCtxSetLimit, cuCtxGetLimit
#include "cudaprog.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *image(const struct command *c) {
    static char text[256];
    int n = snprintf(text, sizeof text, "simcuda module 1\nkernel k %llu\n",
                     (unsigned long long)number_or(c, 3, 0));
    if (number(c, 2))
        snprintf(text + n, sizeof text - (size_t)n, "global g %llu\n",
                 (unsigned long long)number(c, 2));
    return text;
}

static const char *file(const struct command *c) {
    static char path[64];
    FILE *f;
    snprintf(path, sizeof path, "/tmp/cudaprog-module-%d", (int)getpid());
    f = fopen(path, "w");
    if (!f)
        return NULL;
    fputs(image(c), f);
    fclose(f);
    return path;
}

static CUresult load_by_table(void **module, const char *text) {
    typedef CUresult get_module(void **, const void *);
    static const unsigned char id[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                         0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
    struct {
        unsigned int magic, version;
        const void *data, *more;
    } wrapper = {0x466243b1, 1, text, NULL};
    const void *table = NULL;
    CUresult r = CU(cuGetExportTable)(&table, id);
    return r ? r : ((get_module *)((void *const *)table)[1])(module, &wrapper);
}

static void do_load(const struct command *c) {
    const char *how = c->word[0];
    struct name *n = lookup(c, 1, true);
    void *module = NULL;
    CUresult r;
    if (strcmp(how, "loadtable") == 0) {
        r = load_by_table(&module, image(c));
    } else if (strcmp(how, "loadex") == 0) {
        r = CU(cuModuleLoadDataEx)(&module, image(c), 0, NULL, NULL);
    } else if (strcmp(how, "loadfat") == 0) {
        r = CU(cuModuleLoadFatBinary)(&module, image(c));
    } else if (strcmp(how, "loadfile") == 0) {
        const char *path = file(c);
        r = CU(cuModuleLoad)(&module, path);
        unlink(path);
    } else if (strcmp(how, "loadlibrary") == 0) {
        r = CU(cuLibraryLoadData)(&module, image(c), NULL, NULL, 0, NULL, NULL, 0);
    } else if (strcmp(how, "loadlibraryfile") == 0) {
        const char *path = file(c);
        r = CU(cuLibraryLoadFromFile)(&module, path, NULL, NULL, 0, NULL, NULL, 0);
        unlink(path);
    } else {
        r = CU(cuModuleLoadData)(&module, image(c));
    }
    if (r == 0)
        n->value = (uintptr_t)module;
    else if (module)
        r = 9999; // the call was refused, and has changed the handle
    answer(c, r, "");
}

struct loader {
    pthread_t thread;
    pthread_barrier_t *met;
    CUcontext context;
    const char *text;
    CUresult result;
};

static void *load_run(void *arg) {
    struct loader *l = arg;
    void *module;
    pthread_barrier_wait(l->met);
    l->result = CU(cuCtxSetCurrent)(l->context);
    if (l->result == 0)
        l->result = CU(cuModuleLoadData)(&module, l->text);
    return NULL;
}

static void do_loadthreads(const struct command *c) {
    enum { MOST = 16 };
    struct loader all[MOST] = {0};
    size_t n = number(c, 1) < MOST ? number(c, 1) : MOST;
    unsigned granted = 0, refused = 0;
    pthread_barrier_t met;
    char more[32];
    if (pthread_barrier_init(&met, NULL, (unsigned)n) != 0)
        abort();
    for (size_t i = 0; i < n; i++) {
        all[i].met = &met;
        all[i].text = image(c);
        if (CU(cuCtxGetCurrent)(&all[i].context) != 0 ||
            pthread_create(&all[i].thread, NULL, load_run, &all[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < n; i++) {
        pthread_join(all[i].thread, NULL);
        granted += all[i].result == 0;
        refused += all[i].result == 2;
    }
    pthread_barrier_destroy(&met);
    snprintf(more, sizeof more, "%u %u", granted, refused);
    answer(c, 0, more);
}

static void *named(const struct command *c, int i) {
    return (void *)(uintptr_t)lookup(c, i, false)->value;
}

static void do_unload(const struct command *c) {
    bool library = strcmp(c->word[0], "unloadlibrary") == 0;
    answer(c, library ? CU(cuLibraryUnload)(named(c, 1)) : CU(cuModuleUnload)(named(c, 1)), "");
}

static void do_global(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    CUdeviceptr at = 0;
    size_t bytes = 0;
    CUresult r = CU(cuModuleGetGlobal_v2)(&at, &bytes, named(c, 2), "g");
    if (r == 0)
        n->value = at;
    answer(c, r, "");
}

static void do_run(const struct command *c) {
    void *function = NULL;
    CUresult r = CU(cuModuleGetFunction)(&function, named(c, 1), "k");
    if (r == 0)
        r = CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    answer(c, r ? r : CU(cuCtxSynchronize)(), "");
}

static void do_setlimit(const struct command *c) {
    answer(c, CU(cuCtxSetLimit)((int)number(c, 1), (size_t)number(c, 2)), "");
}

static void do_getlimit(const struct command *c) {
    char text[32];
    size_t value = 0;
    CUresult r = CU(cuCtxGetLimit)(&value, (int)number(c, 1));
    snprintf(text, sizeof text, "%zu", value);
    answer(c, r, text);
}

const struct verb modules_verbs[] = {
    {"load", do_load},
    {"loadex", do_load},
    {"loadfat", do_load},
    {"loadfile", do_load},
    {"loadtable", do_load},
    {"loadlibrary", do_load},
    {"loadlibraryfile", do_load},
    {"loadthreads", do_loadthreads},
    {"unload", do_unload},
    {"unloadlibrary", do_unload},
    {"global", do_global},
    {"run", do_run},
    {"setlimit", do_setlimit},
    {"getlimit", do_getlimit},
    {NULL, NULL},
};
