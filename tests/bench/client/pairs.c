// SPDX-License-Identifier: Apache-2.0
// pairs: what a call of Vulkan's or OpenCL's takes on the system's own drivers. Says "ready", and
// answers each line "vulkan|dispatch|opencl|told COUNT" with nanoseconds a call, or a pair of
// calls:
//
//   vulkan     memory is allocated and freed;      dispatch   vkCmdDispatch is recorded
//   opencl     a buffer is made and released
//   told       the same, and the driver is asked to say when it ends
//
// Vulkan's functions are asked of the device, which leads past the loader.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <vulkan/vulkan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static VkDevice device;
static PFN_vkAllocateMemory allocate;
static PFN_vkFreeMemory free_memory;
static PFN_vkCmdDispatch dispatch;
static VkCommandPool pool;
static VkCommandBuffer commands;
static cl_context context;

static void die(const char *what) {
    fprintf(stderr, "pairs: %s\n", what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void start_vulkan(void) {
    VkInstance instance;
    VkPhysicalDevice card;
    uint32_t one = 1;
    float priority = 1;
    VkInstanceCreateInfo of_instance = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    VkDeviceQueueCreateInfo queues = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                      .queueCount = 1,
                                      .pQueuePriorities = &priority};
    VkDeviceCreateInfo of_device = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                    .queueCreateInfoCount = 1,
                                    .pQueueCreateInfos = &queues};
    VkCommandPoolCreateInfo of_pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    if (vkCreateInstance(&of_instance, NULL, &instance) != VK_SUCCESS ||
        vkEnumeratePhysicalDevices(instance, &one, &card) < 0 ||
        vkCreateDevice(card, &of_device, NULL, &device) != VK_SUCCESS ||
        vkCreateCommandPool(device, &of_pool, NULL, &pool) != VK_SUCCESS)
        die("Vulkan does not start");
    VkCommandBufferAllocateInfo of_buffer = {.sType =
                                                 VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                             .commandPool = pool,
                                             .commandBufferCount = 1};
    if (vkAllocateCommandBuffers(device, &of_buffer, &commands) != VK_SUCCESS)
        die("no command buffer");
    allocate = (PFN_vkAllocateMemory)vkGetDeviceProcAddr(device, "vkAllocateMemory");
    free_memory = (PFN_vkFreeMemory)vkGetDeviceProcAddr(device, "vkFreeMemory");
    dispatch = (PFN_vkCmdDispatch)vkGetDeviceProcAddr(device, "vkCmdDispatch");
}

static void start_opencl(void) {
    cl_platform_id platform = NULL;
    cl_device_id processor = NULL;
    cl_int status = clGetPlatformIDs(1, &platform, NULL);
    if (status == CL_SUCCESS)
        status = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &processor, NULL);
    if (status == CL_SUCCESS)
        context = clCreateContext(NULL, 1, &processor, NULL, NULL, &status);
    if (status != CL_SUCCESS)
        die("OpenCL does not start");
}

static void run_vulkan(long count) {
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = 512};
    for (long i = 0; i < count; i++) {
        VkDeviceMemory memory;
        if (allocate(device, &info, NULL, &memory) != VK_SUCCESS)
            die("memory is refused");
        free_memory(device, memory, NULL);
    }
}

static double run_dispatch(long count) {
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    vkBeginCommandBuffer(commands, &begin);
    double began = now();
    for (long i = 0; i < count; i++)
        dispatch(commands, 1, 1, 1);
    double took = now() - began;
    vkEndCommandBuffer(commands);
    vkResetCommandPool(device, pool, 0);
    return took;
}

static void CL_CALLBACK nothing(cl_mem memory, void *arg) {
    (void)memory;
    (void)arg;
}

static void run_opencl(long count, int told) {
    for (long i = 0; i < count; i++) {
        cl_int status;
        cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE, 512, NULL, &status);
        if (status != CL_SUCCESS)
            die("a buffer is refused");
        if (told && clSetMemObjectDestructorCallback(memory, nothing, NULL) != CL_SUCCESS)
            die("the driver does not say when a buffer ends");
        clReleaseMemObject(memory);
    }
}

int main(void) {
    char what[16];
    long count;
    start_vulkan();
    start_opencl();
    printf("ready\n");
    fflush(stdout);
    while (scanf("%15s %ld", what, &count) == 2) {
        double began = now(), took = 0;
        if (strcmp(what, "vulkan") == 0)
            run_vulkan(count);
        else if (strcmp(what, "opencl") == 0 || strcmp(what, "told") == 0)
            run_opencl(count, what[0] == 't');
        else
            took = run_dispatch(count);
        printf("%.2f\n", (took > 0 ? took : now() - began) / (double)count);
        fflush(stdout);
    }
    return 0;
}
