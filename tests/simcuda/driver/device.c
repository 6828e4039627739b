// SPDX-License-Identifier: Apache-2.0
//
// Devices as one program sees them: CUDA_VISIBLE_DEVICES, names, attributes.

#include "driver.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void uuid_text(const struct sim_device *d, char out[48]) {
    int n = snprintf(out, 48, d->instance_of ? "MIG-" : "GPU-");
    for (int i = 0; i < 16; i++)
        n += snprintf(out + n, 48 - (size_t)n, "%s%02x",
                      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", d->uuid[i]);
}

// Reports whether CUDA may show a device: a GPU that MIG has divided is not shown, but its
// instances are.
static bool usable(const struct sim_state *s, int phys) {
    return sim_present(s, phys) && !sim_divided(s, phys);
}

// Lists the devices that CUDA_VISIBLE_DEVICES can name by number: of all MIG instances only the
// first.
static int numbered(const struct sim_state *s, int list[SIM_MAX_DEVICES]) {
    int n = 0;
    bool instance = false;
    for (int i = 0; i < (int)s->device_count; i++) {
        if (!usable(s, i) || (s->dev[i].instance_of && instance))
            continue;
        instance |= s->dev[i].instance_of != 0;
        list[n++] = i;
    }
    return n;
}

// Finds a device by its index, or by the first characters of a UUID that match only one device. −1:
// neither.
static int find_device(const struct sim_state *s, const char *word) {
    if (isdigit((unsigned char)word[0])) {
        int list[SIM_MAX_DEVICES], count = numbered(s, list);
        char *end;
        unsigned long n = strtoul(word, &end, 10);
        return !*end && n < (unsigned long)count ? list[n] : -1;
    }
    int found = -1;
    for (uint32_t i = 0; i < s->device_count && strlen(word) > 4; i++) {
        char text[48];
        uuid_text(&s->dev[i], text);
        if (usable(s, (int)i) && strncasecmp(text, word, strlen(word)) == 0) {
            if (found >= 0)
                return -1;
            found = (int)i;
        }
    }
    return found;
}

// Reads CUDA_VISIBLE_DEVICES. The list ends at the first word that is not a device, or is a device
// that was named before.
bool dev_select(struct driver *d) {
    const char *env = getenv("CUDA_VISIBLE_DEVICES");
    d->device_count = 0;
    if (!env) {
        d->device_count = numbered(d->sim, d->phys);
        return d->device_count > 0;
    }
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", env);
    char *save = NULL;
    for (char *w = strtok_r(copy, ", ", &save); w; w = strtok_r(NULL, ", ", &save)) {
        int phys = find_device(d->sim, w);
        for (int i = 0; i < d->device_count; i++)
            if (d->phys[i] == phys)
                phys = -1;
        if (phys < 0)
            break;
        d->phys[d->device_count++] = phys;
    }
    return d->device_count > 0;
}

CUresult dev_lost(int phys) {
    if (atomic_load_explicit(&drv.sim->dev[phys].lost, memory_order_relaxed) ||
        sim_outlived(drv.sim, drv.me, phys))
        return drv.sim->config.lost_code;
    return CUDA_SUCCESS;
}

static struct sim_device *device(CUdevice d) {
    return &drv.sim->dev[drv.phys[d]];
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    ENTER();
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = drv.device_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *dev, int ordinal) {
    ENTER();
    if (!dev)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *dev = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
    ENTER();
    if (!name || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)len, "%s", device(dev)->name);
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice dev) {
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, device(dev)->uuid, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) {
    ENTER();
    CUresult rc = get_uuid(uuid, dev);
    if (!rc && device(dev)->instance_of) // the first version returns the UUID of the GPU
        memcpy(uuid->bytes, drv.sim->dev[device(dev)->instance_of - 1].uuid, sizeof uuid->bytes);
    return rc;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
    ENTER();
    return get_uuid(uuid, dev);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    ENTER();
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = (size_t)sim_capacity(drv.sim, drv.phys[dev]);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice dev) {
    ENTER();
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    uint64_t n = sim_capacity(drv.sim, drv.phys[dev]);
    *bytes = n > UINT32_MAX ? UINT32_MAX : (unsigned)n;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev) {
    ENTER();
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *major = SIM_COMPUTE_MAJOR;
    *minor = SIM_COMPUTE_MINOR;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev) {
    ENTER();
    if (!id || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    const struct sim_device *d = device(dev);
    snprintf(id, (size_t)len, "%04X:%02X:%02X.0", d->pci_domain, d->pci_bus, d->pci_device);
    return CUDA_SUCCESS;
}

// Attributes of a common card of compute capability 8.6. An attribute that is not listed is 0, the
// driver's answer for an ability that the device lacks.
static const int attributes[][2] = {
    {1, 1024},        // MAX_THREADS_PER_BLOCK
    {2, 1024},        // MAX_BLOCK_DIM_X
    {3, 1024},        // MAX_BLOCK_DIM_Y
    {4, 64},          // MAX_BLOCK_DIM_Z
    {5, 2147483647},  // MAX_GRID_DIM_X
    {6, 65535},       // MAX_GRID_DIM_Y
    {7, 65535},       // MAX_GRID_DIM_Z
    {8, 49152},       // MAX_SHARED_MEMORY_PER_BLOCK
    {9, 65536},       // TOTAL_CONSTANT_MEMORY
    {10, 32},         // WARP_SIZE
    {11, 2147483647}, // MAX_PITCH
    {12, 65536},      // MAX_REGISTERS_PER_BLOCK
    {13, 1695000},    // CLOCK_RATE, kHz
    {14, 512},        // TEXTURE_ALIGNMENT
    {15, 1},          // GPU_OVERLAP
    {16, 28},         // MULTIPROCESSOR_COUNT
    {19, 1},          // CAN_MAP_HOST_MEMORY
    {21, 131072},     // MAXIMUM_TEXTURE1D_WIDTH
    {22, 131072},     // MAXIMUM_TEXTURE2D_WIDTH
    {23, 65536},      // MAXIMUM_TEXTURE2D_HEIGHT
    {24, 16384},      // MAXIMUM_TEXTURE3D_WIDTH
    {25, 16384},      // MAXIMUM_TEXTURE3D_HEIGHT
    {26, 16384},      // MAXIMUM_TEXTURE3D_DEPTH
    {30, 512},        // SURFACE_ALIGNMENT
    {31, 1},          // CONCURRENT_KERNELS
    {36, 7501000},    // MEMORY_CLOCK_RATE, kHz
    {37, 192},        // GLOBAL_MEMORY_BUS_WIDTH
    {38, 2359296},    // L2_CACHE_SIZE
    {39, 1536},       // MAX_THREADS_PER_MULTIPROCESSOR
    {40, 2},          // ASYNC_ENGINE_COUNT
    {41, 1},          // UNIFIED_ADDRESSING
    {51, 32},         // TEXTURE_PITCH_ALIGNMENT
    {78, 1},          // STREAM_PRIORITIES_SUPPORTED
    {81, 102400},     // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    {82, 65536},      // MAX_REGISTERS_PER_MULTIPROCESSOR
    {83, 1},          // MANAGED_MEMORY
    {89, 1},          // CONCURRENT_MANAGED_ACCESS
    {95, 0},          // COOPERATIVE_LAUNCH: no kernels here
    {97, 101376},     // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    {102, 1},         // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    {99, 1},          // HOST_REGISTER_SUPPORTED
    {106, 16},        // MAX_BLOCKS_PER_MULTIPROCESSOR
    {111, 1024},      // RESERVED_SHARED_MEMORY_PER_BLOCK
    {115, 1},         // MEMORY_POOLS_SUPPORTED
    {119, 1},         // MEMPOOL_SUPPORTED_HANDLE_TYPES: descriptors
    {112, 1},         // SPARSE_CUDA_ARRAY_SUPPORTED
    {121, 1},         // DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED
    {132, 1},         // MULTICAST_SUPPORTED
};

static int attribute_of(int attribute, CUdevice dev) {
    switch (attribute) {
    case 33:
        return (int)device(dev)->pci_bus;
    case 34:
        return (int)device(dev)->pci_device;
    case 50:
        return (int)device(dev)->pci_domain;
    case 75:
        return SIM_COMPUTE_MAJOR;
    case 76:
        return SIM_COMPUTE_MINOR;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++)
        if (attributes[i][0] == attribute)
            return attributes[i][1];
    return 0;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice dev) {
    enum { ATTRIBUTE_MAX = 135 }; // last attribute of driver 555
    ENTER();
    if (!value || attribute <= 0 || attribute > ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dev_valid(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute_of(attribute, dev);
    return CUDA_SUCCESS;
}
