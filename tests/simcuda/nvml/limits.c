// SPDX-License-Identifier: Apache-2.0
//
// Limits of device memory for each cgroup, as release 615 of the driver keeps them in a table of
// its own if the kernel has no controller for device memory. Each entry is a file in the machine's
// folder, named by the device and by the inode number of the cgroup's folder. The simulated driver
// stores these limits and does not enforce them. Tests read the files.

#include "nvml.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_LIMIT UINT64_MAX

// Arguments of nvmlDeviceSetMemoryLimits_v1: a cgroup's folder, and limits in bytes.
struct set_limits {
    const char *folder;
    unsigned long long soft, hard;
};

// Argument and results of nvmlDeviceGetMemoryLimits_v1, in bytes. used is always 0.
struct get_limits {
    const char *folder;
    unsigned long long soft, hard, used;
};

// Writes to out the path of the file with the limits of a cgroup's folder on a device. Returns
// false if the folder does not exist.
static bool limit_file(int phys, const char *folder, char out[PATH_MAX]) {
    struct stat st;
    if (stat(folder, &st) || !S_ISDIR(st.st_mode))
        return false;
    snprintf(out, PATH_MAX, "%s/limit-%d-%" PRIu64, sim_dir(), phys, (uint64_t)st.st_ino);
    return true;
}

// Returns the limits of the folder, or those of the nearest folder above it that has limits. If
// none has, returns NVML_ERROR_NOT_FOUND.
EXPORT nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t d, struct get_limits *limits) {
    char path[PATH_MAX], around[PATH_MAX];
    DEVICE(d, s, phys);
    LACKS(s, SIM_LACKS_LIMITS);
    if (!limits || !limits->folder || limits->folder[0] != '/')
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(around, sizeof around, "%s", limits->folder);
    while (around[0]) {
        if (!limit_file(phys, around, path))
            return NVML_ERROR_OPERATING_SYSTEM;
        FILE *f = fopen(path, "re");
        if (f) {
            int n = fscanf(f, "%llu %llu", &limits->soft, &limits->hard);
            fclose(f);
            limits->used = 0;
            return n == 2 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
        }
        *strrchr(around, '/') = '\0';
    }
    return NVML_ERROR_NOT_FOUND;
}

// Sets the limits of a folder. A soft limit of 0 with the hard limit NO_LIMIT deletes them. The new
// file replaces the old one in one step, so that a reader sees both limits of one call.
EXPORT nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t d, const struct set_limits *limits) {
    char path[PATH_MAX], fresh[PATH_MAX + 4];
    DEVICE(d, s, phys);
    LACKS(s, SIM_LACKS_LIMITS);
    if (!limits || !limits->folder || limits->soft > limits->hard ||
        (limits->hard != NO_LIMIT && limits->hard > s->dev[phys].total))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (s->dev[phys].instance_of)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!limit_file(phys, limits->folder, path))
        return NVML_ERROR_OPERATING_SYSTEM;
    if (limits->soft == 0 && limits->hard == NO_LIMIT)
        return unlink(path) && errno != ENOENT ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *f = fopen(fresh, "we");
    if (!f)
        return NVML_ERROR_UNKNOWN;
    fprintf(f, "%llu %llu\n", limits->soft, limits->hard);
    return fclose(f) || rename(fresh, path) ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}
