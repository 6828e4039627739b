// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for plain, pitched, managed and stream-ordered memory, and the host's:
//
//   alloc NAME SIZE              cuMemAlloc_v2;   allocv1: cuMemAlloc, of 32 bits
//   pitch NAME WIDTH HEIGHT      cuMemAllocPitch_v2: "pitch a ok 512";
//                                pitchv1: cuMemAllocPitch
//   managed NAME SIZE            cuMemAllocManaged
//   allocasync NAME SIZE STREAM  cuMemAllocAsync;   allocptsz: the _ptsz entry point
//   allocpool NAME SIZE STREAM [POOL]  cuMemAllocFromPoolAsync, the device's default
//                                pool if none is named; poolptsz: the _ptsz entry point
//   free NAME                    cuMemFree_v2 (by name, also after it was freed);
//                                freev1: cuMemFree
//   freeasync NAME STREAM        cuMemFreeAsync;    freeptsz: the _ptsz entry point
//   freeunknown ADDRESS          cuMemFree_v2 of a number
//   write NAME BYTE; read NAME   cuMemsetD8, cuMemcpyDtoH: "read a ok 7"
//   fill NAME SIZE               as many blocks as there are to be had, called NAME.0,
//                                NAME.1…: "fill a ok 16 err 2"
//   many NAME COUNT SIZE         COUNT blocks; stops at the first failure
//   freemany NAME                frees the blocks of fill or many: "freemany a ok 16"
//   pairs COUNT SIZE             alloc and free in turn: "pairs ok 1000000 31.5"
//                                (nanoseconds a pair)
//   asyncpairs COUNT SIZE STREAM…  allocasync and freeasync in turn, on each of the
//                                streams in turn: "asyncpairs ok 100"
//   host NAME SIZE               cuMemAllocHost_v2;   hostv1: cuMemAllocHost
//   hostflags NAME SIZE          cuMemHostAlloc
//   register NAME SIZE           cuMemHostRegister_v2 of the program's own memory;
//                                registerv1: cuMemHostRegister
//   freehost NAME                cuMemFreeHost (by name, also after it was freed)
//   unregister NAME              cuMemHostUnregister
#include "cudaprog.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

CUresult named_pool(const struct command *c, int i, CUpool *pool) {
    if (strcmp(word(c, i), "default") == 0)
        return CU(cuDeviceGetDefaultMemPool)(pool, device);
    *pool = (CUpool)(uintptr_t)lookup(c, i, false)->value;
    return 0;
}

static CUresult allocate_v1(CUdeviceptr *p, uint64_t size) {
    uint32_t shorter = 0;
    CUresult r = CU(cuMemAlloc)(&shorter, (unsigned int)size);
    *p = shorter;
    return r;
}

static CUresult allocate(const struct command *c, struct name *n) {
    const char *what = c->word[0];
    CUdeviceptr p = 0;
    CUpool pool = NULL;
    CUresult r;
    n->size = number(c, 2);
    if (strcmp(what, "alloc") == 0)
        r = CU(cuMemAlloc_v2)(&p, n->size);
    else if (strcmp(what, "allocv1") == 0)
        r = allocate_v1(&p, n->size);
    else if (strcmp(what, "managed") == 0)
        r = CU(cuMemAllocManaged)(&p, n->size, 1);
    else if (strcmp(what, "allocasync") == 0)
        r = CU(cuMemAllocAsync)(&p, n->size, stream(c, 3));
    else if (strcmp(what, "allocptsz") == 0)
        r = CU(cuMemAllocAsync_ptsz)(&p, n->size, stream(c, 3));
    else {
        r = c->words > 4 ? named_pool(c, 4, &pool) : CU(cuDeviceGetDefaultMemPool)(&pool, device);
        if (r == 0 && what[0] == 'p')
            r = CU(cuMemAllocFromPoolAsync_ptsz)(&p, n->size, pool, stream(c, 3));
        else if (r == 0)
            r = CU(cuMemAllocFromPoolAsync)(&p, n->size, pool, stream(c, 3));
    }
    if (r == 0)
        n->value = p;
    return r;
}

static void do_alloc(const struct command *c) {
    answer(c, allocate(c, lookup(c, 1, true)), "");
}

static CUresult pitched_v1(CUdeviceptr *p, size_t *pitch, uint64_t width, uint64_t height) {
    uint32_t shorter = 0;
    unsigned int row = 0;
    CUresult r = CU(cuMemAllocPitch)(&shorter, &row, (unsigned int)width, (unsigned int)height, 4);
    *p = shorter;
    *pitch = row;
    return r;
}

static void do_pitch(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    size_t pitch = 0;
    CUdeviceptr p = 0;
    bool first = strcmp(c->word[0], "pitchv1") == 0;
    CUresult r = first ? pitched_v1(&p, &pitch, number(c, 2), number(c, 3))
                       : CU(cuMemAllocPitch_v2)(&p, &pitch, number(c, 2), number(c, 3), 4);
    char more[32];
    snprintf(more, sizeof more, "%zu", pitch);
    if (r == 0)
        n->value = p;
    answer(c, r, more);
}

static void do_free(const struct command *c) {
    uint64_t p = lookup(c, 1, false)->value;
    CUresult r;
    if (strcmp(c->word[0], "free") == 0)
        r = CU(cuMemFree_v2)(p);
    else if (strcmp(c->word[0], "freev1") == 0)
        r = CU(cuMemFree)((uint32_t)p);
    else if (strcmp(c->word[0], "freeasync") == 0)
        r = CU(cuMemFreeAsync)(p, stream(c, 2));
    else
        r = CU(cuMemFreeAsync_ptsz)(p, stream(c, 2));
    answer(c, r, "");
}

static void do_freeunknown(const struct command *c) {
    answer(c, CU(cuMemFree_v2)(number(c, 1)), "");
}

static void do_write(const struct command *c) {
    struct name *n = lookup(c, 1, false);
    answer(c, CU(cuMemsetD8_v2)(n->value, (unsigned char)number(c, 2), n->size ? n->size : 1), "");
}

static void do_read(const struct command *c) {
    struct name *n = lookup(c, 1, false);
    unsigned char byte = 0;
    char more[8];
    CUresult r = CU(cuMemcpyDtoH_v2)(&byte, n->value + (n->size ? n->size - 1 : 0), 1);
    snprintf(more, sizeof more, "%d", byte);
    answer(c, r, more);
}

static void collect(const struct command *c, uint64_t most, uint64_t size) {
    struct name *n = lookup(c, 1, true);
    char more[64];
    CUresult r = 0;
    size_t room = 0;
    n->count = 0;
    while (n->count < most) {
        if (n->count == room) {
            room = room ? room * 2 : 64;
            n->many = realloc(n->many, room * sizeof *n->many);
            if (!n->many)
                abort();
        }
        CUdeviceptr p;
        r = CU(cuMemAlloc_v2)(&p, size);
        if (r != 0)
            break;
        n->many[n->count++] = p;
    }
    if (r == 0)
        snprintf(more, sizeof more, "%zu", n->count);
    else
        snprintf(more, sizeof more, "%zu err %d", n->count, r);
    answer(c, 0, more);
}

static void do_fill(const struct command *c) {
    collect(c, UINT64_MAX, number(c, 2));
}

static void do_many(const struct command *c) {
    collect(c, number(c, 2), number(c, 3));
}

static void do_freemany(const struct command *c) {
    struct name *n = lookup(c, 1, false);
    char more[32];
    size_t freed = 0;
    CUresult r = 0;
    for (size_t i = 0; i < n->count && r == 0; i++) {
        r = CU(cuMemFree_v2)(n->many[i]);
        freed += r == 0;
    }
    n->count = 0;
    snprintf(more, sizeof more, "%zu", freed);
    answer(c, r, more);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void do_pairs(const struct command *c) {
    uint64_t count = number(c, 1);
    size_t size = number(c, 2);
    CUresult r = 0;
    char more[64];
    double began = seconds();
    for (uint64_t i = 0; i < count && r == 0; i++) {
        CUdeviceptr p;
        r = CU(cuMemAlloc_v2)(&p, size);
        if (r == 0)
            r = CU(cuMemFree_v2)(p);
    }
    snprintf(more, sizeof more, "%" PRIu64 " %.1f", count,
             (seconds() - began) * 1e9 / (double)(count ? count : 1));
    answer(c, r, more);
}

static void do_asyncpairs(const struct command *c) {
    uint64_t count = number(c, 1);
    size_t size = number(c, 2);
    CUstream s[WORDS] = {stream(c, 3)};
    uint64_t streams = 1;
    CUresult r = 0;
    char more[32];
    for (int i = 4; i < c->words; i++)
        s[streams++] = stream(c, i);
    for (uint64_t i = 0; i < count && r == 0; i++) {
        CUdeviceptr p;
        r = CU(cuMemAllocAsync)(&p, size, s[i % streams]);
        if (r == 0)
            r = CU(cuMemFreeAsync)(p, s[i % streams]);
    }
    snprintf(more, sizeof more, "%" PRIu64, count);
    answer(c, r, more);
}

static CUresult lock_host(const struct command *c, void **at) {
    const char *what = c->word[0];
    size_t size = number(c, 2);
    if (strcmp(what, "host") == 0)
        return CU(cuMemAllocHost_v2)(at, size);
    if (strcmp(what, "hostv1") == 0)
        return CU(cuMemAllocHost)(at, (unsigned int)size);
    if (strcmp(what, "hostflags") == 0)
        return CU(cuMemHostAlloc)(at, size, 1);
    *at = malloc(size); // small blocks: registered memory stays allocated
    return strcmp(what, "register") == 0 ? CU(cuMemHostRegister_v2)(*at, size, 0)
                                         : CU(cuMemHostRegister)(*at, size, 0);
}

static void do_host(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    void *at = NULL;
    CUresult r = lock_host(c, &at);
    if (r == 0)
        n->value = (uintptr_t)at;
    answer(c, r, "");
}

static void do_freehost(const struct command *c) {
    void *at = (void *)(uintptr_t)lookup(c, 1, false)->value;
    bool registered = strcmp(c->word[0], "unregister") == 0;
    answer(c, registered ? CU(cuMemHostUnregister)(at) : CU(cuMemFreeHost)(at), "");
}

const struct verb memory_verbs[] = {
    {"alloc", do_alloc},
    {"allocv1", do_alloc},
    {"managed", do_alloc},
    {"allocasync", do_alloc},
    {"allocptsz", do_alloc},
    {"allocpool", do_alloc},
    {"poolptsz", do_alloc},
    {"pitch", do_pitch},
    {"pitchv1", do_pitch},
    {"free", do_free},
    {"freev1", do_free},
    {"freeasync", do_free},
    {"freeptsz", do_free},
    {"freeunknown", do_freeunknown},
    {"write", do_write},
    {"read", do_read},
    {"fill", do_fill},
    {"many", do_many},
    {"freemany", do_freemany},
    {"pairs", do_pairs},
    {"asyncpairs", do_asyncpairs},
    {"host", do_host},
    {"hostv1", do_host},
    {"hostflags", do_host},
    {"register", do_host},
    {"registerv1", do_host},
    {"freehost", do_freehost},
    {"unregister", do_freehost},
    {NULL, NULL},
};
