// SPDX-License-Identifier: Apache-2.0
//
// Shared by the files of the simulated NVML; and NVML's interface in declarations of our own.
#ifndef SIMCUDA_NVML_H
#define SIMCUDA_NVML_H

#include "sim.h"

#define EXPORT __attribute__((visibility("default")))

typedef int nvmlReturn_t;
typedef void *nvmlDevice_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
};

enum { NVML_UUID_TEXT = 41 };

struct sim_state *nvml_state(void); // NULL: not initialised
nvmlReturn_t nvml_device(nvmlDevice_t handle, struct sim_state **s, int *phys);
nvmlDevice_t nvml_handle(const struct sim_state *s, int phys);
nvmlReturn_t nvml_text(char *out, unsigned length, const char *text);
void nvml_uuid(const struct sim_state *s, int phys, char out[NVML_UUID_TEXT]);

#define LACKS(s, what)                                                                             \
    do {                                                                                           \
        if ((s)->config.nvml_lacks & (what))                                                       \
            return NVML_ERROR_NOT_SUPPORTED;                                                       \
    } while (0)

#define DEVICE(handle, s, phys)                                                                    \
    struct sim_state *s;                                                                           \
    int phys;                                                                                      \
    do {                                                                                           \
        nvmlReturn_t device_rc = nvml_device(handle, &s, &phys);                                   \
        if (device_rc)                                                                             \
            return device_rc;                                                                      \
    } while (0)

#endif
