// SPDX-License-Identifier: Apache-2.0
// Makes and ends an object of each interface (mixed.h), on the interface's first device.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <vulkan/vulkan.h>

#include <pthread.h>
#include <stdbool.h>

#include "cudriver.h"
#include "mixed.h"

// CUDA: a context, which is current in a thread only while the thread uses it

static int cuda_status;

static void open_cuda(void) {
    cuda_status = cu_open() == 0 ? CU(cuInit)(0) : 1;
}

static int end_cuda(struct object *o) {
    CUcontext popped;
    CUresult r = o->memory ? CU(cuCtxPushCurrent_v2)(o->handle) : 0;
    if (r == 0 && o->memory) {
        r = CU(cuMemFree_v2)(o->memory);
        CU(cuCtxPopCurrent_v2)(&popped);
    }
    CUresult destroyed = CU(cuCtxDestroy_v2)(o->handle);
    return r ? r : destroyed;
}

static int make_cuda(struct object *o, size_t bytes) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    CUcontext popped;
    pthread_once(&once, open_cuda);
    CUresult r = cuda_status ? cuda_status : CU(cuCtxCreate_v2)(&o->handle, 0, 0);
    if (r != 0)
        return r;
    if (bytes)
        r = CU(cuMemAlloc_v2)(&o->memory, bytes);
    CU(cuCtxPopCurrent_v2)(&popped);
    if (r != 0)
        end_cuda(o);
    return r;
}

// OpenCL: a context

static cl_int opencl_status;
static cl_device_id opencl_device;

static void open_opencl(void) {
    cl_platform_id platform;
    opencl_status = clGetPlatformIDs(1, &platform, NULL);
    if (opencl_status == CL_SUCCESS)
        opencl_status = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &opencl_device, NULL);
}

static int end_opencl(struct object *o) {
    cl_int status = o->memory ? clReleaseMemObject((cl_mem)(uintptr_t)o->memory) : CL_SUCCESS;
    cl_int released = clReleaseContext(o->handle);
    return status ? status : released;
}

static int make_opencl(struct object *o, size_t bytes) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_opencl);
    cl_int status = opencl_status;
    if (status == CL_SUCCESS)
        o->handle = clCreateContext(NULL, 1, &opencl_device, NULL, NULL, &status);
    if (status != CL_SUCCESS)
        return status;
    if (bytes)
        o->memory = (uintptr_t)clCreateBuffer(o->handle, CL_MEM_READ_WRITE, bytes, NULL, &status);
    if (status != CL_SUCCESS)
        end_opencl(o);
    return status;
}

// Vulkan: a logical device

static VkResult vulkan_status;
static VkPhysicalDevice vulkan_card;

static void open_vulkan(void) {
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                     .apiVersion = VK_API_VERSION_1_1};
    VkInstance instance;
    uint32_t one = 1;
    info.pApplicationInfo = &application;
    vulkan_status = vkCreateInstance(&info, NULL, &instance);
    if (vulkan_status == VK_SUCCESS)
        vulkan_status = vkEnumeratePhysicalDevices(instance, &one, &vulkan_card);
    if (vulkan_status == VK_INCOMPLETE || (vulkan_status == VK_SUCCESS && one == 0))
        vulkan_status = one ? VK_SUCCESS : VK_ERROR_INITIALIZATION_FAILED;
}

static int end_vulkan(struct object *o) {
    if (o->memory)
        vkFreeMemory(o->handle, (VkDeviceMemory)o->memory, NULL);
    vkDestroyDevice(o->handle, NULL);
    return VK_SUCCESS;
}

static VkResult make_device(VkDevice *device) {
    static const float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue};
    return vkCreateDevice(vulkan_card, &info, NULL, device);
}

static int make_vulkan(struct object *o, size_t bytes) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    VkDevice device;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    pthread_once(&once, open_vulkan);
    VkResult result = vulkan_status ? vulkan_status : make_device(&device);
    if (result != VK_SUCCESS)
        return result;
    o->handle = device;
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = bytes};
    if (bytes)
        result = vkAllocateMemory(device, &info, NULL, &memory);
    o->memory = (uint64_t)memory;
    if (result != VK_SUCCESS)
        end_vulkan(o);
    return result;
}

const struct interface interfaces[INTERFACES] = {
    {"cuda", make_cuda, end_cuda},
    {"opencl", make_opencl, end_opencl},
    {"vulkan", make_vulkan, end_vulkan},
};
