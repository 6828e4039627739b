// SPDX-License-Identifier: Apache-2.0
//
// libnvidia-ml.so.1 over the shared state: initialisation, and which devices there are.

#include "nvml.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    struct sim_state *sim;
    unsigned users;
    uint32_t losses[SIM_MAX_DEVICES]; // losses of each device at the first initialisation
    int order[SIM_MAX_DEVICES];       // devices that were present then, by NVML's index
    unsigned count;
} lib = {.lock = PTHREAD_MUTEX_INITIALIZER};

// The handle of device n is the address of byte n.
static char handles[SIM_MAX_DEVICES];

struct sim_state *nvml_state(void) {
    pthread_mutex_lock(&lib.lock);
    struct sim_state *s = lib.users ? lib.sim : NULL;
    pthread_mutex_unlock(&lib.lock);
    return s;
}

// hang waits while a file of that name exists. It reads the file: if the file leads to a filesystem
// that does not answer, the call hangs so that no signal ends it, as in a driver.
static void hang(const char *what) {
    char path[4096], c;
    snprintf(path, sizeof path, "%s/hang-%s", sim_dir(), what);
    for (int fd; (fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0; close(fd)) {
        struct timespec step = {0, 5000000};
        if (read(fd, &c, 1) < 0)
            nanosleep(&step, NULL);
        nanosleep(&step, NULL);
    }
}

static void hang_device(int phys) {
    char what[16];
    snprintf(what, sizeof what, "%d", phys);
    hang(what);
}

// Reports whether a device is lost. A device that was lost since the initialisation stays lost
// until NVML is initialised again.
static bool is_lost(struct sim_state *s, int phys) {
    return atomic_load(&s->dev[phys].lost) || atomic_load(&s->dev[phys].losses) != lib.losses[phys];
}

// Reports whether a handle may be used: of a GPU that was there at the initialisation, or of an
// instance of such a GPU, whenever MIG made it.
static bool is_known(const struct sim_state *s, int phys) {
    unsigned of = s->dev[phys].instance_of;
    if (of && (!sim_present(s, phys) || s->dev[phys].hidden))
        return false;
    for (unsigned i = 0; i < lib.count; i++)
        if (lib.order[i] == (of ? (int)of - 1 : phys))
            return true;
    return false;
}

nvmlReturn_t nvml_device(nvmlDevice_t handle, struct sim_state **s, int *phys) {
    *s = nvml_state();
    if (!*s)
        return NVML_ERROR_UNINITIALIZED;
    char *h = handle;
    if (!h || h < handles || h >= handles + (*s)->device_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *phys = (int)(h - handles);
    if (!is_known(*s, *phys))
        return NVML_ERROR_INVALID_ARGUMENT;
    atomic_fetch_add(&(*s)->dev[*phys].asked, 1);
    hang_device(*phys);
    return is_lost(*s, *phys) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlDevice_t nvml_handle(const struct sim_state *s, int phys) {
    (void)s;
    return &handles[phys];
}

// Notes the devices that are there at the initialisation: the library knows no others.
static void look(struct sim_state *s) {
    lib.count = 0;
    for (uint32_t k = 0; k < s->device_count; k++) {
        uint32_t i = s->config.nvml_order_reverse ? s->device_count - 1 - k : k;
        lib.losses[i] = atomic_load(&s->dev[i].losses);
        if (sim_present(s, (int)i) && !s->dev[i].hidden && !s->dev[i].instance_of)
            lib.order[lib.count++] = (int)i;
    }
}

static bool any_present(const struct sim_state *s) {
    for (uint32_t i = 0; i < s->device_count; i++)
        if (sim_present(s, (int)i))
            return true;
    return false;
}

static nvmlReturn_t init(void) {
    nvmlReturn_t rc = NVML_SUCCESS;
    hang("init");
    pthread_mutex_lock(&lib.lock);
    if (!lib.sim)
        lib.sim = sim_open();
    if (!lib.sim)
        rc = NVML_ERROR_UNKNOWN;
    else if (!any_present(lib.sim))
        rc = NVML_ERROR_DRIVER_NOT_LOADED;
    else if (lib.users++ == 0)
        look(lib.sim);
    pthread_mutex_unlock(&lib.lock);
    return rc;
}

EXPORT nvmlReturn_t nvmlInit(void) {
    return init();
}
EXPORT nvmlReturn_t nvmlInit_v2(void) {
    return init();
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    return flags & ~3u ? NVML_ERROR_INVALID_ARGUMENT : init();
}

EXPORT nvmlReturn_t nvmlShutdown(void) {
    pthread_mutex_lock(&lib.lock);
    nvmlReturn_t rc = lib.users ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (lib.users)
        lib.users--;
    pthread_mutex_unlock(&lib.lock);
    return rc;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code) {
    static const char *const text[] = {
        "Success",
        "Uninitialized",
        "Invalid Argument",
        "Not Supported",
        "Insufficient Permissions",
        "Already Initialized",
        "Not Found",
        "Insufficient Size",
        "Insufficient External Power",
        "Driver Not Loaded",
        "Timeout",
        "Interrupt Request Issue",
        "NVML Shared Library Not Found",
        "Function Not Found",
        "Corrupted infoROM",
        "GPU is lost",
        "GPU requires reset",
        "GPU access blocked by the operating system",
        "Driver/library version mismatch",
        "In use by another client",
        "Insufficient Memory",
        "No data",
    };
    if (code >= 0 && (size_t)code < sizeof text / sizeof text[0])
        return text[code];
    return "Unknown Error";
}

nvmlReturn_t nvml_text(char *out, unsigned length, const char *text) {
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (length <= strlen(text))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

static nvmlReturn_t count(unsigned *n) {
    struct sim_state *s = nvml_state();
    if (!s)
        return NVML_ERROR_UNINITIALIZED;
    if (!n)
        return NVML_ERROR_INVALID_ARGUMENT;
    *n = lib.count;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *n) {
    return count(n);
}
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n) {
    return count(n);
}

static nvmlReturn_t hand_out(struct sim_state *s, int phys, nvmlDevice_t *out) {
    hang_device(phys);
    if (is_lost(s, phys))
        return NVML_ERROR_GPU_IS_LOST;
    *out = nvml_handle(s, phys);
    return NVML_SUCCESS;
}

static nvmlReturn_t by_index(unsigned index, nvmlDevice_t *out) {
    struct sim_state *s = nvml_state();
    if (!s)
        return NVML_ERROR_UNINITIALIZED;
    if (!out || index >= lib.count)
        return NVML_ERROR_INVALID_ARGUMENT;
    return hand_out(s, lib.order[index], out);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice_t *out) {
    return by_index(i, out);
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *out) {
    return by_index(i, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out) {
    struct sim_state *s = nvml_state();
    if (!s)
        return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < s->device_count; i++) {
        char text[NVML_UUID_TEXT];
        nvml_uuid(s, (int)i, text);
        if (is_known(s, (int)i) && strcmp(text, uuid) == 0)
            return hand_out(s, (int)i, out);
    }
    return NVML_ERROR_NOT_FOUND;
}

// MIG: a GPU is in MIG mode as long as it has instances.
EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *current, unsigned *pending) {
    DEVICE(d, s, phys);
    if (!current || !pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    bool can = false;
    for (uint32_t i = 0; i < s->device_count; i++)
        can |= s->dev[i].instance_of == (uint32_t)phys + 1;
    if (!can)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = sim_divided(s, phys);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned *count) {
    DEVICE(d, s, phys);
    (void)s, (void)phys;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 7;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned index,
                                                        nvmlDevice_t *out) {
    DEVICE(d, s, phys);
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < s->device_count; i++)
        if (s->dev[i].instance_of == (uint32_t)phys + 1 && is_known(s, (int)i) && index-- == 0)
            return hand_out(s, (int)i, out);
    return NVML_ERROR_NOT_FOUND;
}
