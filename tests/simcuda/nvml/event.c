// SPDX-License-Identifier: Apache-2.0
//
// Event sets. The one event that happens here is a device that is lost, which the driver reports as
// a critical Xid 79 ("GPU has fallen off the bus").

#include "nvml.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EVENT_XID_CRITICAL 0x8ull

enum { XID_FALLEN_OFF = 79 };

struct event_set {
    unsigned long long wanted[SIM_MAX_DEVICES];
    bool told[SIM_MAX_DEVICES]; // its loss was delivered
};

struct event_data {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out) {
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = calloc(1, sizeof(struct event_set));
    return *out ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    free(set);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t d, unsigned long long *types) {
    DEVICE(d, s, phys);
    (void)s, (void)phys;
    if (!types)
        return NVML_ERROR_INVALID_ARGUMENT;
    *types = EVENT_XID_CRITICAL;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types,
                                             nvmlEventSet_t set) {
    DEVICE(d, s, phys);
    (void)s;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (types & ~EVENT_XID_CRITICAL)
        return NVML_ERROR_NOT_SUPPORTED;
    ((struct event_set *)set)->wanted[phys] |= types;
    return NVML_SUCCESS;
}

static bool lost_device(struct sim_state *s, struct event_set *set, struct event_data *out) {
    for (uint32_t i = 0; i < s->device_count; i++) {
        bool lost = atomic_load(&s->dev[i].lost) != 0;
        if (lost && !set->told[i] && set->wanted[i]) {
            set->told[i] = true;
            *out = (struct event_data){nvml_handle(s, (int)i), EVENT_XID_CRITICAL, XID_FALLEN_OFF,
                                       ~0u, ~0u};
            return true;
        }
        if (!lost)
            set->told[i] = false;
    }
    return false;
}

static nvmlReturn_t wait_event(nvmlEventSet_t set, struct event_data *out, size_t size,
                               unsigned timeout_ms) {
    enum { STEP_MS = 5 };
    struct sim_state *s = nvml_state();
    struct event_data e;
    if (!s)
        return NVML_ERROR_UNINITIALIZED;
    if (!set || !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    uint64_t end = sim_now_ns() + timeout_ms * 1000000ull;
    while (!lost_device(s, set, &e)) {
        if (sim_now_ns() >= end)
            return NVML_ERROR_TIMEOUT;
        struct timespec step = {0, STEP_MS * 1000000L};
        nanosleep(&step, NULL);
    }
    memcpy(out, &e, size);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, struct event_data *out, unsigned ms) {
    return wait_event(set, out, offsetof(struct event_data, gpu_instance), ms);
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, struct event_data *out, unsigned ms) {
    return wait_event(set, out, sizeof *out, ms);
}
