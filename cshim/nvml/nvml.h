// SPDX-License-Identifier: Apache-2.0
// The part of NVML, the vendor's monitoring library, that reports memory sizes and the processes on
// a device; and the functions of nvml.c that answer such questions. The declarations are our own,
// and the program loads NVML. hooks.c calls the functions.
#ifndef GA_NVML_H
#define GA_NVML_H

#include "core/root.h"

typedef int ga_nvml_result; // nvmlReturn_t
typedef struct ga_nvml_device_object *ga_nvml_device;

#define GA_NVML_SUCCESS 0
#define GA_NVML_NOT_FOUND 6
#define GA_NVML_INSUFFICIENT_SIZE 7
#define GA_NVML_FUNCTION_NOT_FOUND 13

struct ga_nvml_memory {
    uint64_t total, free, used;
};
struct ga_nvml_memory_v2 {
    unsigned int version;
    uint64_t total, reserved, free, used;
};

// A process on a device, in the form of each version. The first two members are at the same offset
// in all forms.
struct ga_nvml_process_v1 {
    unsigned int pid;
    uint64_t used;
};
struct ga_nvml_process {
    unsigned int pid;
    uint64_t used;
    unsigned int gpu_instance, compute_instance;
};
struct ga_nvml_detail {
    unsigned int pid;
    uint64_t used;
    unsigned int gpu_instance, compute_instance;
    uint64_t protected_used;
};
struct ga_nvml_details {
    unsigned int version, mode, count;
    struct ga_nvml_detail *list;
};

// Use of a device by one process, in percent (nvmlProcessUtilizationSample_t).
struct ga_nvml_sample {
    unsigned int pid;
    unsigned long long at_us;
    unsigned int multiprocessors, memory, encoder, decoder;
};
// Use of a device by one process, in percent (nvmlProcessUtilizationInfo_v1_t); and the list of
// such records that a program passes.
struct ga_nvml_busy {
    unsigned long long at_us;
    unsigned int pid;
    unsigned int multiprocessors, memory, encoder, decoder, jpeg, flow;
};
struct ga_nvml_busy_list {
    unsigned int version, count;
    unsigned long long since_us;
    struct ga_nvml_busy *list;
};

// One number for each row of hooks.def.
enum ga_nvml_row {
#define GA_HOOK(symbol, class, bytes, parameters, arguments, ...) GA_NVML_ROW_##symbol,
#define GA_NEED(symbol, parameters) GA_NVML_ROW_##symbol,
#include "nvml/hooks.def"
#undef GA_HOOK
#undef GA_NEED
    GA_NVML_ROWS
};

#define GA_HOOK(symbol, class, bytes, parameters, arguments, ...)                                  \
    typedef ga_nvml_result GA_FN_##symbol parameters;
#define GA_NEED(symbol, parameters) typedef ga_nvml_result GA_FN_##symbol parameters;
#include "nvml/hooks.def"
#undef GA_HOOK
#undef GA_NEED

extern void *_Atomic ga_nvml_functions[GA_NVML_ROWS];

#define GA_NVML_REAL(symbol)                                                                       \
    ((GA_FN_##symbol *)atomic_load_explicit(&ga_nvml_functions[GA_NVML_ROW_##symbol],              \
                                            memory_order_relaxed))

// Answers of NVML about a device handle. They are stored because NVML makes system calls for each
// answer.
struct ga_nvml_device_info {
    ga_nvml_device device; // NULL: the slot is empty
    uint64_t at_ms;
    uint64_t reserved; // bytes of the device's memory that the driver reserves for itself
    uint8_t uuid[GA_UUID_SIZE];
};

struct ga_nvml_state {
    struct ga_spin lock;
    struct ga_nvml_device_info devices[GA_DEVICES];
};

#define GA_NVML_STATE ((size_t)160 << 10) // offset of this state behind the root (ga_root_state)
static inline struct ga_nvml_state *ga_nvml(struct ga_root *root) {
    return ga_root_state(root, GA_NVML_STATE);
}

// Answer a program's question: call NVML (real), and replace its answer by the program's budget, or
// by the processes of its own job. If the device has no budget, NVML's answer stands.
ga_nvml_result ga_nvml_memory(GA_FN_nvmlDeviceGetMemoryInfo *real, ga_nvml_device device,
                              struct ga_nvml_memory *memory);
ga_nvml_result ga_nvml_memory_v2(GA_FN_nvmlDeviceGetMemoryInfo_v2 *real, ga_nvml_device device,
                                 struct ga_nvml_memory_v2 *memory);
// size: bytes of a record in this version.
ga_nvml_result ga_nvml_processes(GA_FN_nvmlDeviceGetComputeRunningProcesses *real, size_t size,
                                 ga_nvml_device device, unsigned int *count, void *list);
ga_nvml_result ga_nvml_process_details(GA_FN_nvmlDeviceGetRunningProcessDetailList *real,
                                       ga_nvml_device device, struct ga_nvml_details *details);
ga_nvml_result ga_nvml_process_utilization(GA_FN_nvmlDeviceGetProcessUtilization *real,
                                           ga_nvml_device device, struct ga_nvml_sample *samples,
                                           unsigned int *count, unsigned long long since);
ga_nvml_result ga_nvml_processes_utilization(GA_FN_nvmlDeviceGetProcessesUtilizationInfo *real,
                                             ga_nvml_device device, struct ga_nvml_busy_list *busy);

#endif
