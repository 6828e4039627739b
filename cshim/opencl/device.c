// SPDX-License-Identifier: Apache-2.0
// Reads the identity of an OpenCL device, and remembers its number (device.h).
#include "opencl/device.h"

#include "core/device.h"
#include "core/driver.h"
#include "core/session.h"
#include "opencl/state.h"

static bool ask(ga_cl_device device, ga_cl_uint what, void *value, size_t size) {
    return GA_OPENCL_ASK(clGetDeviceInfo, device, what, size, value, NULL);
}

// Reads the identity of a device that has no UUID: its PCI address as text, padded with zeros, as
// in cshim/cuda. In OpenCL's slot the low three bits are the PCI function, and the other bits are
// the PCI device.
static bool read_address(ga_cl_device device, uint8_t identity[GA_UUID_SIZE]) {
    ga_cl_uint bus;
    ga_cl_uint slot;
    ga_cl_uint domain = 0;
    if (!ask(device, GA_CL_DEVICE_PCI_BUS, &bus, sizeof bus) ||
        !ask(device, GA_CL_DEVICE_PCI_SLOT, &slot, sizeof slot))
        return false;
    ask(device, GA_CL_DEVICE_PCI_DOMAIN, &domain, sizeof domain);
    char text[GA_UUID_SIZE] = "0000:00:00.0";
    ga_os_hex(text, domain, 4);
    ga_os_hex(text + 5, bus, 2);
    ga_os_hex(text + 8, slot >> 3, 2);
    ga_os_hex(text + 11, slot & 7, 1);
    ga_os_copy(identity, text, GA_UUID_SIZE);
    return true;
}

static bool ask_platform(ga_cl_device device, ga_cl_uint what, char *text, size_t size) {
    ga_cl_platform platform = NULL;
    return ask(device, GA_CL_DEVICE_PLATFORM, &platform, sizeof platform) && platform &&
           GA_OPENCL_ASK(clGetPlatformInfo, platform, what, size, text, NULL);
}

// Returns the name that gpuarb's configuration has for the driver of a CPU device; NULL: none.
static const char *cpu_driver_name(ga_cl_device device) {
    char text[512] = "";
    if (ask_platform(device, GA_CL_PLATFORM_NAME, text, sizeof text - 1) &&
        ga_os_begins(text, "Portable Computing Language"))
        return "pocl";
    // Mesa's rusticl
    if (ask(device, GA_CL_DEVICE_NAME, text, sizeof text - 1) && ga_os_begins(text, "llvmpipe"))
        return "llvmpipe";
    return NULL;
}

// Reads the identity of a device. *permanent: whether later calls will read the same identity. The
// device that a CPU driver is counted on may not be known yet.
static bool read_identity(struct ga_root *root, ga_cl_device device, uint8_t identity[GA_UUID_SIZE],
                          bool *permanent) {
    *permanent = true;
    if (ga_opencl_device_is_cpu(device)) {
        *permanent = ga_driver_device(root, cpu_driver_name(device), identity);
        return true;
    }
    return ask(device, GA_CL_DEVICE_UUID, identity, GA_UUID_SIZE) || read_address(device, identity);
}

bool ga_opencl_device_is_cpu(ga_cl_device device) {
    ga_cl_bits type = 0;
    return ask(device, GA_CL_DEVICE_TYPE, &type, sizeof type) && type & GA_CL_DEVICE_TYPE_CPU;
}

static bool is_cpu_number(struct ga_root *root, uint32_t number) {
    return ga_device_same(root->devices[number].uuid, ga_driver_processor);
}

// Returns the size of a device's memory in bytes. 0: not known, because the driver computes on the
// CPU but its memory is counted on a GPU, or the other way round.
static uint64_t total_of(struct ga_root *root, uint32_t number, ga_cl_device device) {
    uint64_t total = 0;
    if (is_cpu_number(root, number) == ga_opencl_device_is_cpu(device))
        ask(device, GA_CL_DEVICE_GLOBAL_MEM_SIZE, &total, sizeof total);
    return total;
}

// Reports whether a device is a sub-device (clCreateSubDevices), or may be one. The number of a
// sub-device is not remembered, because the driver may give its handle to another sub-device later.
static bool may_be_sub_device(ga_cl_device device) {
    ga_cl_device whole = NULL;
    return !ask(device, GA_CL_DEVICE_PARENT_DEVICE, &whole, sizeof whole) || whole;
}

// Returns the remembered number of a device; −1: none.
static int find_known(const struct ga_opencl_device_record *all, const void *device) {
    for (size_t i = 0; device && i < GA_OPENCL_DEVICE_RECORDS; i++)
        if (atomic_load_explicit(&all[i].device, memory_order_acquire) == device)
            return all[i].number;
    return -1;
}

// Remembers the number of a device. If all records are in use, the driver is asked each time.
static void remember(struct ga_root *root, void *device, int number) {
    struct ga_opencl_state *state = ga_opencl(root);
    struct ga_opencl_device_record *all = state->numbers;
    size_t next = 0;
    ga_self_lock(&state->lock);
    while (next < GA_OPENCL_DEVICE_RECORDS && atomic_load(&all[next].device))
        next++;
    if (next < GA_OPENCL_DEVICE_RECORDS && find_known(all, device) < 0) {
        all[next].number = number;
        atomic_store_explicit(&all[next].device, device, memory_order_release);
    }
    ga_self_unlock(&state->lock);
}

static int read_number(struct ga_root *root, ga_cl_device device, bool *permanent) {
    uint8_t identity[GA_UUID_SIZE];
    if (!read_identity(root, device, identity, permanent))
        return -1;
    int number = ga_device_find(root, identity);
    if (number >= 0)
        return number;
    number = ga_device_number(root, identity);
    if (number < 0)
        return -1;
    uint64_t total = root->env.hello.share ? total_of(root, (uint32_t)number, device) : 0;
    ga_device_declare(root, (uint32_t)number, total);
    return number;
}

int ga_opencl_device_number(struct ga_root *root, ga_cl_device device) {
    bool permanent;
    int number = find_known(ga_opencl(root)->numbers, device);
    if (GA_LIKELY(number >= 0))
        return number;
    number = device ? read_number(root, device, &permanent) : -1;
    if (number >= 0 && permanent && !may_be_sub_device(device))
        remember(root, device, number);
    return number;
}

// Most daemons do not arbitrate the CPU; it must stay usable then. A GPU that the daemon does not
// know keeps its number: if on-loss is "closed", its use is refused later.
int ga_opencl_device_arbitrated(struct ga_root *root, ga_cl_device device) {
    int number = ga_opencl_device_number(root, device);
    if (number >= 0 && is_cpu_number(root, (uint32_t)number) &&
        ga_session_lacks(root, (uint32_t)number))
        return -1;
    return number;
}

static int first_of(struct ga_root *root, const ga_cl_device *devices, size_t count,
                    ga_cl_device *device) {
    int number = -1;
    for (size_t i = 0; i < count && number < 0; i++) {
        *device = devices[i];
        number = ga_opencl_device_arbitrated(root, *device);
    }
    return number;
}

int ga_opencl_device_first(struct ga_root *root, ga_cl_context context, ga_cl_device *device) {
    ga_cl_device few[8];
    size_t size = 0;
    GA_FN_clGetContextInfo *get = GA_OPENCL_REAL(clGetContextInfo);
    if (!get)
        return -1;
    if (get(context, GA_CL_CONTEXT_DEVICES, sizeof few, few, &size) == GA_CL_SUCCESS)
        return first_of(root, few, size / sizeof few[0], device);
    if (get(context, GA_CL_CONTEXT_DEVICES, 0, NULL, &size) != GA_CL_SUCCESS || size == 0)
        return -1;
    ga_cl_device *all = ga_os_map(size);
    int number = -1;
    if (all && get(context, GA_CL_CONTEXT_DEVICES, size, all, NULL) == GA_CL_SUCCESS)
        number = first_of(root, all, size / sizeof all[0], device);
    if (all)
        ga_os_unmap(all, size);
    return number;
}

// CL_PLATFORM_VERSION is "OpenCL 3.0 …" (OpenCL 3.0, 4.1).
bool ga_opencl_device_is_3(ga_cl_device device) {
    static const size_t major = sizeof "OpenCL " - 1;
    char version[512] = "";
    return ask_platform(device, GA_CL_PLATFORM_VERSION, version, sizeof version - 1) &&
           version[major] >= '3' && version[major] <= '9';
}
