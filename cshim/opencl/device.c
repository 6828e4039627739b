// SPDX-License-Identifier: Apache-2.0
#include "opencl/device.h"

#include "core/device.h"
#include "core/session.h"

// In the daemon, inventory knows it by the same bytes.
static const uint8_t processor[GA_UUID_SIZE] = {'g', 'p', 'u', 'a', 'r', 'b', ':', 'p',
                                                'r', 'o', 'c', 'e', 's', 's', 'o', 'r'};

static bool ask(ga_cl_device device, ga_cl_uint what, void *value, size_t size) {
    return GA_OPENCL_REAL(clGetDeviceInfo) &&
           GA_OPENCL_REAL(clGetDeviceInfo)(device, what, size, value, NULL) == GA_CL_SUCCESS;
}

static char digit(uint32_t value) {
    return "0123456789abcdef"[value & 0xf];
}

// As CUDA has it where a device has no UUID: the PCI address, as text, zero-padded. The slot is the
// device's number there, and in its last three bits the function's.
static bool read_address(ga_cl_device device, uint8_t identity[GA_UUID_SIZE]) {
    ga_cl_uint bus;
    ga_cl_uint slot;
    ga_cl_uint domain = 0;
    if (!ask(device, GA_CL_DEVICE_PCI_BUS, &bus, sizeof bus) ||
        !ask(device, GA_CL_DEVICE_PCI_SLOT, &slot, sizeof slot))
        return false;
    ask(device, GA_CL_DEVICE_PCI_DOMAIN, &domain, sizeof domain);
    char text[GA_UUID_SIZE] = {digit(domain >> 12),
                               digit(domain >> 8),
                               digit(domain >> 4),
                               digit(domain),
                               ':',
                               digit(bus >> 4),
                               digit(bus),
                               ':',
                               digit(slot >> 7),
                               digit(slot >> 3),
                               '.',
                               digit(slot & 7)};
    ga_os_copy(identity, text, GA_UUID_SIZE);
    return true;
}

static bool read_identity(ga_cl_device device, uint8_t identity[GA_UUID_SIZE]) {
    ga_cl_bits type;
    if (!ask(device, GA_CL_DEVICE_TYPE, &type, sizeof type))
        return false;
    if (type & GA_CL_DEVICE_TYPE_CPU) {
        ga_os_copy(identity, processor, GA_UUID_SIZE);
        return true;
    }
    return ask(device, GA_CL_DEVICE_UUID, identity, GA_UUID_SIZE) || read_address(device, identity);
}

int ga_opencl_device_number(struct ga_root *root, ga_cl_device device) {
    uint8_t identity[GA_UUID_SIZE];
    uint64_t total = 0;
    if (!device || !read_identity(device, identity))
        return -1;
    int number = ga_device_find(root, identity);
    if (GA_LIKELY(number >= 0))
        return number;
    number = ga_device_number(root, identity);
    if (number >= 0 && root->env.memory_mill)
        ask(device, GA_CL_DEVICE_GLOBAL_MEM_SIZE, &total, sizeof total);
    if (number >= 0)
        ga_device_declare(root, (uint32_t)number, total);
    return number;
}

bool ga_opencl_device_is_processor(struct ga_root *root, uint32_t number) {
    return ga_device_same(root->devices[number].uuid, processor);
}

// Without a lease what a GPU is used for is refused, where a daemon's loss is closed. The processor
// is everybody's, and most daemons never hear of it.
int ga_opencl_device_used(struct ga_root *root, ga_cl_device device) {
    int number = ga_opencl_device_number(root, device);
    if (number >= 0 && ga_opencl_device_is_processor(root, (uint32_t)number) &&
        ga_session_lacks(root, (uint32_t)number))
        return -1;
    return number;
}

// The first of a context's devices, which is at least one.
static ga_cl_device first_of(ga_cl_context context) {
    ga_cl_device few[8] = {NULL};
    size_t size = 0;
    GA_FN_clGetContextInfo *get = GA_OPENCL_REAL(clGetContextInfo);
    if (!get)
        return NULL;
    if (get(context, GA_CL_CONTEXT_DEVICES, sizeof few, few, NULL) == GA_CL_SUCCESS)
        return few[0];
    if (get(context, GA_CL_CONTEXT_DEVICES, 0, NULL, &size) != GA_CL_SUCCESS || size == 0)
        return NULL;
    ga_cl_device *all = ga_os_map(size);
    ga_cl_device first = NULL;
    if (!all)
        return NULL;
    if (get(context, GA_CL_CONTEXT_DEVICES, size, all, NULL) == GA_CL_SUCCESS)
        first = all[0];
    ga_os_unmap(all, size);
    return first;
}

int ga_opencl_device_of(struct ga_root *root, ga_cl_context context) {
    return ga_opencl_device_used(root, first_of(context));
}

// "OpenCL 3.0 …": OpenCL 3.0, 4.1, of CL_PLATFORM_VERSION.
bool ga_opencl_device_is_3(ga_cl_device device) {
    static const size_t major = sizeof "OpenCL " - 1;
    ga_cl_platform platform = NULL;
    char version[512] = "";
    return ask(device, GA_CL_DEVICE_PLATFORM, &platform, sizeof platform) && platform &&
           GA_OPENCL_REAL(clGetPlatformInfo) &&
           GA_OPENCL_REAL(clGetPlatformInfo)(platform, GA_CL_PLATFORM_VERSION, sizeof version - 1,
                                             version, NULL) == GA_CL_SUCCESS &&
           version[major] >= '3' && version[major] <= '9';
}
