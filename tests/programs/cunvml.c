// SPDX-License-Identifier: Apache-2.0
// Asks NVML for memory and processes (cunvml.h), in each version of its functions.
#include "cunvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *device;

struct memory {
    uint64_t total, free, used;
};
struct memory_v2 {
    unsigned version;
    uint64_t total, reserved, free, used;
};
struct short_record {
    unsigned pid;
    uint64_t used;
};
struct record {
    unsigned pid;
    uint64_t used;
    unsigned instances[2];
};
struct detail {
    unsigned pid;
    uint64_t used;
    unsigned instances[2];
    uint64_t protected_used;
};
struct details {
    unsigned version, mode, count;
    struct detail *list;
};

struct sample {
    unsigned pid;
    unsigned long long at_us;
    unsigned busy[4];
};

struct busy {
    unsigned long long at_us;
    unsigned pid;
    unsigned busy[6];
};

struct busy_list {
    unsigned version, count;
    unsigned long long since_us;
    struct busy *list;
};

#define NVML_FUNCTIONS(ROW)                                                                        \
    ROW(nvmlInit_v2, (void))                                                                       \
    ROW(nvmlDeviceGetHandleByIndex_v2, (unsigned, device *))                                       \
    ROW(nvmlDeviceGetMemoryInfo, (device, struct memory *))                                        \
    ROW(nvmlDeviceGetMemoryInfo_v2, (device, struct memory_v2 *))                                  \
    ROW(nvmlDeviceGetComputeRunningProcesses, (device, unsigned *, void *))                        \
    ROW(nvmlDeviceGetComputeRunningProcesses_v2, (device, unsigned *, void *))                     \
    ROW(nvmlDeviceGetComputeRunningProcesses_v3, (device, unsigned *, void *))                     \
    ROW(nvmlDeviceGetGraphicsRunningProcesses, (device, unsigned *, void *))                       \
    ROW(nvmlDeviceGetGraphicsRunningProcesses_v2, (device, unsigned *, void *))                    \
    ROW(nvmlDeviceGetGraphicsRunningProcesses_v3, (device, unsigned *, void *))                    \
    ROW(nvmlDeviceGetMPSComputeRunningProcesses, (device, unsigned *, void *))                     \
    ROW(nvmlDeviceGetMPSComputeRunningProcesses_v2, (device, unsigned *, void *))                  \
    ROW(nvmlDeviceGetMPSComputeRunningProcesses_v3, (device, unsigned *, void *))                  \
    ROW(nvmlDeviceGetRunningProcessDetailList, (device, struct details *))                         \
    ROW(nvmlDeviceGetProcessUtilization,                                                           \
        (device, struct sample *, unsigned *, unsigned long long))                                 \
    ROW(nvmlDeviceGetProcessesUtilizationInfo, (device, struct busy_list *))

#ifdef HOW_LINK
#define DECLARE(symbol, parameters) extern int symbol parameters;
NVML_FUNCTIONS(DECLARE)
#define NVML(symbol) (symbol)
static void load(void) {}
#else
#include <dlfcn.h>

static struct {
#define DECLARE(symbol, parameters) int(*symbol) parameters;
    NVML_FUNCTIONS(DECLARE)
} nvml;
#define NVML(symbol) (nvml.symbol)

static void load(void) {
    void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
#define LOOK_UP(symbol, parameters) *(void **)&nvml.symbol = handle ? dlsym(handle, #symbol) : NULL;
    NVML_FUNCTIONS(LOOK_UP)
    if (!nvml.nvmlDeviceGetRunningProcessDetailList) {
        fprintf(stderr, "cudaprog: no NVML\n");
        exit(1);
    }
}
#endif

static int find(unsigned index, device *d) {
    static int ready;
    int r = 0;
    if (!ready) {
        load();
        r = NVML(nvmlInit_v2)();
        ready = r == 0;
    }
    return r ? r : NVML(nvmlDeviceGetHandleByIndex_v2)(index, d);
}

int nvml_memory(unsigned index, int v2, uint64_t answer[4]) {
    device d;
    struct memory m = {0};
    struct memory_v2 n = {.version = sizeof n | 2u << 24};
    int r = find(index, &d);
    if (r == 0)
        r = v2 ? NVML(nvmlDeviceGetMemoryInfo_v2)(d, &n) : NVML(nvmlDeviceGetMemoryInfo)(d, &m);
    answer[0] = v2 ? n.free : m.free;
    answer[1] = v2 ? n.used : m.used;
    answer[2] = v2 ? n.total : m.total;
    answer[3] = n.reserved;
    return r;
}

static unsigned mode; // mode of the list of details

static int details(device d, unsigned *count, void *list) {
    struct details all = {sizeof all | 1u << 24, mode, *count, list};
    int r = NVML(nvmlDeviceGetRunningProcessDetailList)(d, &all);
    *count = all.count;
    return r;
}

typedef int query(device, unsigned *, void *);

static query *choose(const char *kind, int version) {
    query *const all[3][3] = {{NVML(nvmlDeviceGetComputeRunningProcesses),
                               NVML(nvmlDeviceGetComputeRunningProcesses_v2),
                               NVML(nvmlDeviceGetComputeRunningProcesses_v3)},
                              {NVML(nvmlDeviceGetGraphicsRunningProcesses),
                               NVML(nvmlDeviceGetGraphicsRunningProcesses_v2),
                               NVML(nvmlDeviceGetGraphicsRunningProcesses_v3)},
                              {NVML(nvmlDeviceGetMPSComputeRunningProcesses),
                               NVML(nvmlDeviceGetMPSComputeRunningProcesses_v2),
                               NVML(nvmlDeviceGetMPSComputeRunningProcesses_v3)}};
    mode = kind[0] == 'c' ? 0 : kind[0] == 'g' ? 1 : 2;
    return version < 1 || version > 3 ? details : all[mode][version - 1];
}

int nvml_processes(unsigned index, const char *kind, int version, unsigned room, unsigned *count,
                   char *text, size_t size) {
    static _Alignas(8) unsigned char list[4096];
    size_t step = version == 0   ? sizeof(struct detail)
                  : version == 1 ? sizeof(struct short_record)
                                 : sizeof(struct record);
    device d;
    int r = find(index, &d);
    *count = room;
    memset(list, 0xee, sizeof list);
    if (r == 0)
        r = choose(kind, version)(d, count, room ? list : NULL);
    text[0] = 0;
    for (unsigned i = 0; r == 0 && i < *count; i++) {
        struct short_record p;
        memcpy(&p, list + i * step, sizeof p);
        size_t used = strlen(text);
        snprintf(text + used, size - used, " %u:%llu", p.pid, (unsigned long long)p.used);
    }
    // NVML must not write behind the end of the list.
    if (r == 0 && list[*count * step] != 0xee)
        r = 9999;
    return r;
}

int nvml_utilization(unsigned index, unsigned room, unsigned *count, char *text, size_t size) {
    struct sample list[64];
    device d;
    int r = find(index, &d);
    *count = room;
    memset(list, 0xee, sizeof list);
    if (r == 0)
        r = NVML(nvmlDeviceGetProcessUtilization)(d, room ? list : NULL, count, 0);
    text[0] = 0;
    for (unsigned i = 0; r == 0 && i < *count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, " %u", list[i].pid);
    }
    return r;
}

int nvml_utilizations(unsigned index, unsigned room, unsigned *count, char *text, size_t size) {
    struct busy list[64];
    struct busy_list all = {
        .version = sizeof all | 1u << 24, .count = room, .list = room ? list : NULL};
    device d;
    int r = find(index, &d);
    memset(list, 0xee, sizeof list);
    if (r == 0)
        r = NVML(nvmlDeviceGetProcessesUtilizationInfo)(d, &all);
    *count = all.count;
    text[0] = 0;
    for (unsigned i = 0; r == 0 && i < all.count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, " %u", list[i].pid);
    }
    return r;
}
