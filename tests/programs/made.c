// SPDX-License-Identifier: Apache-2.0
// libmade.so: a layer of OpenCL's and of Vulkan's loader. It counts the calls that reach the
// drivers to make a context or a logical device, and does nothing else. The file that MADE names
// has the two counts for all processes, 8 bytes each. The tests use it as an oracle, so it shares
// no code with the library.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

static struct { _Atomic uint64_t contexts, devices; } * made;

__attribute__((constructor)) static void open_count(void) {
    const char *path = getenv("MADE");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0 || ftruncate(fd, sizeof *made) != 0)
        abort();
    made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (made == MAP_FAILED)
        abort();
}

// OpenCL

static const cl_icd_dispatch *behind;

static cl_context CL_API_CALL create_context(const cl_context_properties *properties, cl_uint count,
                                             const cl_device_id *devices,
                                             void(CL_CALLBACK *notify)(const char *, const void *,
                                                                       size_t, void *),
                                             void *arg, cl_int *status) {
    atomic_fetch_add(&made->contexts, 1);
    return behind->clCreateContext(properties, count, devices, notify, arg, status);
}

SEEN cl_int clGetLayerInfo(cl_layer_info what, size_t size, void *value, size_t *needed) {
    cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (what != CL_LAYER_API_VERSION || (value && size < sizeof version))
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, &version, sizeof version);
    if (needed)
        *needed = sizeof version;
    return CL_SUCCESS;
}

SEEN cl_int clInitLayer(cl_uint entries, const cl_icd_dispatch *target, cl_uint *count,
                        const cl_icd_dispatch **layer) {
    static cl_icd_dispatch ours;
    size_t size = entries * sizeof(void *);
    behind = target;
    memcpy(&ours, target, size < sizeof ours ? size : sizeof ours);
    ours.clCreateContext = create_context;
    *count = sizeof ours / sizeof(void *);
    *layer = &ours;
    return CL_SUCCESS;
}

// Vulkan

static PFN_vkGetInstanceProcAddr next_of_instance;
static PFN_vkGetDeviceProcAddr next_of_device;

// Returns the loader's list of links, of an instance or a device: both structures begin alike.
static VkLayerDeviceCreateInfo *link_in(const void *list, VkStructureType type) {
    for (const VkLayerDeviceCreateInfo *l = list; l; l = l->pNext)
        if (l->sType == type && l->function == VK_LAYER_LINK_INFO)
            return (VkLayerDeviceCreateInfo *)(uintptr_t)l;
    abort();
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *callbacks,
                                                      VkInstance *instance) {
    VkLayerInstanceCreateInfo *link =
        (void *)link_in(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    next_of_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    PFN_vkCreateInstance create =
        (PFN_vkCreateInstance)next_of_instance(VK_NULL_HANDLE, "vkCreateInstance");
    return create(info, callbacks, instance);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice card,
                                                    const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *callbacks,
                                                    VkDevice *device) {
    VkLayerDeviceCreateInfo *link =
        link_in(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    PFN_vkGetInstanceProcAddr get = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    next_of_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    atomic_fetch_add(&made->devices, 1);
    return ((PFN_vkCreateDevice)get(VK_NULL_HANDLE, "vkCreateDevice"))(card, info, callbacks,
                                                                       device);
}

SEEN VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetDeviceProcAddr(VkDevice device,
                                                                  const char *name) {
    if (strcmp(name, "vkGetDeviceProcAddr") == 0)
        return (PFN_vkVoidFunction)vkGetDeviceProcAddr;
    return next_of_device(device, name);
}

SEEN VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance,
                                                                    const char *name) {
    static const struct {
        const char *name;
        PFN_vkVoidFunction function;
    } wrapped[] = {
        {"vkCreateInstance", (PFN_vkVoidFunction)create_instance},
        {"vkCreateDevice", (PFN_vkVoidFunction)create_device},
        {"vkGetInstanceProcAddr", (PFN_vkVoidFunction)vkGetInstanceProcAddr},
        {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)vkGetDeviceProcAddr},
    };
    for (size_t i = 0; i < sizeof wrapped / sizeof *wrapped; i++)
        if (strcmp(name, wrapped[i].name) == 0)
            return wrapped[i].function;
    return instance ? next_of_instance(instance, name) : NULL;
}
