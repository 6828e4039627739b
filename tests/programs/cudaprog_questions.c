// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for the answers of CUDA and NVML about devices:
//
//   info                         cuMemGetInfo_v2: "info ok FREE TOTAL"; infov1: …Info
//   infos COUNT                  COUNT times cuMemGetInfo_v2: "infos ok 1000000 31.5", the
//                                nanoseconds each; nvmlinfos: nvmlDeviceGetMemoryInfo
//   infothreads T COUNT SIZE     COUNT rounds in which T threads alloc and free, while one asks,
//                                and in the end hold SIZE bytes each, and none; what is free must
//                                be right to the byte then: "infothreads ok COUNT", else the first
//                                round in which it is not
//   total [DEVICE]               cuDeviceTotalMem_v2: "total ok BYTES"; totalv1: …Mem
//   nvmlmemory [INDEX]           nvmlDeviceGetMemoryInfo: "nvmlmemory ok FREE USED TOTAL";
//                                nvmlmemory2: _v2, and RESERVED behind it
//   nvmlprocesses KIND VERSION ROOM [INDEX]  KIND: compute, graphics or mps; version
//                                0 is the list of details:
//                                "nvmlprocesses compute ok 2 PID:BYTES PID:BYTES";
//                                "err 7" with too little room
//   nvmlbusy ROOM [INDEX]        nvmlDeviceGetProcessUtilization: "nvmlbusy ok 2 PID PID";
//                                nvmlbusylist: nvmlDeviceGetProcessesUtilizationInfo
//   devices                      "devices ok 2"
//   value NAME                   the address or handle, in decimal: "value a ok 4096"
#include "cudaprog.h"
#include "cunvml.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void do_info(const struct command *c) {
    size_t room = 0, total = 0;
    char more[64];
    unsigned int less = 0, all = 0;
    CUresult r;
    if (strcmp(c->word[0], "infov1") == 0) {
        r = CU(cuMemGetInfo)(&less, &all);
        room = less;
        total = all;
    } else {
        r = CU(cuMemGetInfo_v2)(&room, &total);
    }
    snprintf(more, sizeof more, "%zu %zu", room, total);
    answer(c, r, more);
}

static void do_infos(const struct command *c) {
    bool nvml = strcmp(c->word[0], "nvmlinfos") == 0;
    uint64_t count = number(c, 1), memory[4];
    size_t room, total;
    int r = 0;
    char more[64];
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (uint64_t i = 0; i < count && r == 0; i++)
        r = nvml ? nvml_memory(0, 0, memory) : CU(cuMemGetInfo_v2)(&room, &total);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double ns = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
    snprintf(more, sizeof more, "%" PRIu64 " %.1f", count, ns / (double)(count ? count : 1));
    answer(c, r, more);
}

struct asker {
    CUcontext context;
    uint64_t rounds, size;
    pthread_barrier_t met;
    atomic_size_t busy; // number of threads that still allocate and free
};

#define TURNS 50

static void *alloc_and_free(void *arg) {
    struct asker *a = arg;
    CUresult r = CU(cuCtxSetCurrent)(a->context);
    for (uint64_t i = 0; i < a->rounds; i++) {
        CUdeviceptr p = 0;
        for (int turn = 0; turn < TURNS && r == 0; turn++) {
            if (p)
                r = CU(cuMemFree_v2)(p);
            r = r ? r : CU(cuMemAlloc_v2)(&p, a->size);
        }
        atomic_fetch_sub(&a->busy, 1);
        pthread_barrier_wait(&a->met); // each thread holds one block now
        pthread_barrier_wait(&a->met);
        r = r ? r : CU(cuMemFree_v2)(p);
        pthread_barrier_wait(&a->met); // no thread holds a block now
        pthread_barrier_wait(&a->met);
    }
    return (void *)(intptr_t)r;
}

static size_t room_now(void) {
    size_t room = 0, total;
    return CU(cuMemGetInfo_v2)(&room, &total) == 0 ? room : 0;
}

static void do_infothreads(const struct command *c) {
    struct asker a = {.rounds = number(c, 2), .size = number(c, 3)};
    size_t threads = number(c, 1), begin = room_now(), wrong = 0;
    pthread_t all[64];
    CUresult r = CU(cuCtxGetCurrent)(&a.context);
    char more[128] = "";
    if (threads > 64 || pthread_barrier_init(&a.met, NULL, (unsigned)threads + 1) != 0)
        abort();
    atomic_store(&a.busy, threads);
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&all[i], NULL, alloc_and_free, &a) != 0)
            abort();
    for (uint64_t i = 0; i < a.rounds; i++) {
        while (atomic_load(&a.busy) > 0)
            room_now();
        pthread_barrier_wait(&a.met);
        size_t held = begin - room_now();
        atomic_store(&a.busy, threads);
        pthread_barrier_wait(&a.met);
        pthread_barrier_wait(&a.met);
        size_t left = begin - room_now();
        if ((held != threads * a.size || left != 0) && wrong++ == 0)
            snprintf(more, sizeof more, "%" PRIu64 ": %zu held and %zu left", i, held, left);
        pthread_barrier_wait(&a.met);
    }
    for (size_t i = 0; i < threads; i++) {
        void *result;
        pthread_join(all[i], &result);
        r = r ? r : (CUresult)(intptr_t)result;
    }
    if (wrong == 0)
        snprintf(more, sizeof more, "%" PRIu64, a.rounds);
    answer(c, r, more);
}

static void do_total(const struct command *c) {
    size_t total = 0;
    char more[32];
    CUdevice of = (CUdevice)number_or(c, 1, (uint64_t)device);
    unsigned int less = 0;
    bool first = strcmp(c->word[0], "totalv1") == 0;
    CUresult r = first ? CU(cuDeviceTotalMem)(&less, of) : CU(cuDeviceTotalMem_v2)(&total, of);
    total = first ? less : total;
    snprintf(more, sizeof more, "%zu", total);
    answer(c, r, more);
}

static void do_nvmlmemory(const struct command *c) {
    bool v2 = strcmp(c->word[0], "nvmlmemory2") == 0;
    uint64_t a[4];
    char more[128];
    int r = nvml_memory((unsigned)number_or(c, 1, 0), v2, a);
    snprintf(more, sizeof more, "%" PRIu64 " %" PRIu64 " %" PRIu64, a[0], a[1], a[2]);
    if (v2)
        snprintf(more + strlen(more), sizeof more - strlen(more), " %" PRIu64, a[3]);
    answer(c, r, more);
}

static void do_nvmlprocesses(const struct command *c) {
    char list[1024], more[1100];
    unsigned count;
    int r = nvml_processes((unsigned)number_or(c, 4, 0), word(c, 1), (int)number(c, 2),
                           (unsigned)number(c, 3), &count, list, sizeof list);
    snprintf(more, sizeof more, "%u%s", count, list);
    answer(c, r, more);
}

static void do_nvmlbusy(const struct command *c) {
    char list[512] = "", more[600];
    unsigned count = 0;
    int r = (strcmp(c->word[0], "nvmlbusy") == 0 ? nvml_utilization : nvml_utilizations)(
        (unsigned)number_or(c, 2, 0), (unsigned)number(c, 1), &count, list, sizeof list);
    snprintf(more, sizeof more, "%u%s", count, list);
    answer(c, r, more);
}

static void do_devices(const struct command *c) {
    int count = 0;
    char more[16];
    CUresult r = CU(cuDeviceGetCount)(&count);
    snprintf(more, sizeof more, "%d", count);
    answer(c, r, more);
}

static void do_value(const struct command *c) {
    char more[32];
    snprintf(more, sizeof more, "%" PRIu64, lookup(c, 1, false)->value);
    answer(c, 0, more);
}

const struct verb questions_verbs[] = {
    {"info", do_info},
    {"infov1", do_info},
    {"infos", do_infos},
    {"nvmlinfos", do_infos},
    {"infothreads", do_infothreads},
    {"total", do_total},
    {"totalv1", do_total},
    {"nvmlmemory", do_nvmlmemory},
    {"nvmlmemory2", do_nvmlmemory},
    {"nvmlprocesses", do_nvmlprocesses},
    {"nvmlbusy", do_nvmlbusy},
    {"nvmlbusylist", do_nvmlbusy},
    {"devices", do_devices},
    {"value", do_value},
    {NULL, NULL},
};
