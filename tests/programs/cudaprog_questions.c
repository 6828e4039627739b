// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for what CUDA and NVML say of devices:
//
//   info                         cuMemGetInfo_v2: "info ok FREE TOTAL"; infov1: …Info
//   total [DEVICE]               cuDeviceTotalMem_v2: "total ok BYTES"; totalv1: …Mem
//   nvmlmemory [INDEX]           nvmlDeviceGetMemoryInfo: "nvmlmemory ok FREE USED TOTAL";
//                                nvmlmemory2: _v2, and RESERVED behind it
//   nvmlprocesses KIND VERSION ROOM [INDEX]  KIND: compute, graphics or mps; version
//                                0 is the list of details:
//                                "nvmlprocesses compute ok 2 PID:BYTES PID:BYTES";
//                                "err 7" with too little room
//   devices                      "devices ok 2"
//   value NAME                   the address or handle, in decimal: "value a ok 4096"
#include "cudaprog.h"
#include "cunvml.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
    {"total", do_total},
    {"totalv1", do_total},
    {"nvmlmemory", do_nvmlmemory},
    {"nvmlmemory2", do_nvmlmemory},
    {"nvmlprocesses", do_nvmlprocesses},
    {"devices", do_devices},
    {"value", do_value},
    {NULL, NULL},
};
