// SPDX-License-Identifier: Apache-2.0
// vkprog: a Vulkan program that executes commands (script.h) on its first device. It prints "ready"
// first. A status is a VkResult.
//
//   instance NAME; end NAME          vkCreateInstance, vkDestroyInstance
//   device NAME INSTANCE; drop NAME  vkCreateDevice, vkDestroyDevice
//   devices INSTANCE THREADS TIMES   threads make and destroy devices at the same time
//   alloc NAME DEVICE SIZE           vkAllocateMemory;  exportable: for import
//   dedicated NAME DEVICE SIZE       memory for one buffer: "ok BYTES", the size of the request
//   image NAME DEVICE WIDTH HEIGHT   memory for one image of four bytes a pixel: "ok BYTES"
//   import NAME DEVICE MEMORY        exports the descriptor of MEMORY, and imports it again
//   host NAME DEVICE SIZE            imports the program's own memory
//   touch NAME                       maps it, writes to every byte, unmaps it
//   free NAME; nothing DEVICE        vkFreeMemory, of a block and of VK_NULL_HANDLE
//   storm DEVICE THREADS TIMES       threads allocate and free blocks of 1 to 64 KiB
//   heaps INSTANCE                   "ok SIZE", of each heap that is local to the device; heaps2:
//                                    vkGetPhysicalDeviceMemoryProperties2
//   budget INSTANCE                  VK_EXT_memory_budget of the first heap: "ok BUDGET USAGE"
//   largest INSTANCE                 maxMemoryAllocationSize
//   whose DEVICE FUNCTION            library of the function of vkGetDeviceProcAddr: "ok libx.so"
//   dispatch DEVICE TIMES            submits an empty shader TIMES times, one by one
//   forked NAME                      a forked child frees it, and ends
//   child DEVICE SIZE                a forked child allocates, and prints the result
//   context NAME; buffer NAME CONTEXT SIZE; release NAME     OpenCL in the same process
//   pid; exit STATUS
#include "vkprog.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void do_instance(void) {
    struct instance *i = script_object(1, sizeof *i, true);
    VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                     .pApplicationName = "vkprog",
                                     .apiVersion = VK_API_VERSION_1_1};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &application};
    VkResult result = VK(vkCreateInstance)(&info, NULL, &i->handle);
    if (result == VK_SUCCESS) {
        uint32_t one = 1;
        result = VK_OF(i, vkEnumeratePhysicalDevices)(i->handle, &one, &i->card);
        if (result == VK_INCOMPLETE)
            result = VK_SUCCESS;
    }
    script_answer(result);
}

static void do_end(void) {
    struct instance *i = instance_named(1);
    VK_OF(i, vkDestroyInstance)(i->handle, NULL);
    script_answer(VK_SUCCESS);
}

static bool has_extension(const struct instance *i, const char *name) {
    static VkExtensionProperties all[512];
    uint32_t count = 512;
    (void)i;
    if (VK_OF(i, vkEnumerateDeviceExtensionProperties)(i->card, NULL, &count, all) < 0)
        return false;
    for (uint32_t n = 0; n < count; n++)
        if (strcmp(all[n].extensionName, name) == 0)
            return true;
    return false;
}

static VkResult create_device(struct instance *i, VkDevice *device) {
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    static const char *const wanted[] = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME,
                                         VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME};
    const char *enabled[2];
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue,
                               .ppEnabledExtensionNames = enabled};
    for (size_t n = 0; n < 2; n++)
        if (has_extension(i, wanted[n]))
            enabled[info.enabledExtensionCount++] = wanted[n];
    return VK_OF(i, vkCreateDevice)(i->card, &info, NULL, device);
}

static void do_device(void) {
    struct device *d = script_object(1, sizeof *d, true);
    d->of = instance_named(2);
    script_answer(create_device(d->of, &d->handle));
}

static void do_drop(void) {
    const struct device *d = device_named(1);
    VK_AT(d, vkDestroyDevice)(d->handle, NULL);
    script_answer(VK_SUCCESS);
}

static uint64_t times;

static void *make_devices(void *arg) {
    struct device d = {.of = arg};
    for (uint64_t n = 0; n < times; n++) {
        if (create_device(d.of, &d.handle) != VK_SUCCESS)
            return arg;
        VK_AT(&d, vkDestroyDevice)(d.handle, NULL);
    }
    return NULL;
}

static void do_devices(void) {
    pthread_t threads[64];
    uint64_t n = script_number(2);
    VkResult result = VK_SUCCESS;
    times = script_number(3);
    if (n > 64)
        script_misunderstood();
    for (uint64_t i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, make_devices, instance_named(1)) != 0)
            script_misunderstood();
    for (uint64_t i = 0; i < n; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        if (failed)
            result = VK_ERROR_INITIALIZATION_FAILED;
    }
    script_answer(result);
}

// Memory sizes

static void memory_properties(const struct instance *i, VkPhysicalDeviceMemoryProperties2 *p) {
    p->sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    if (script_is("heaps"))
        VK_OF(i, vkGetPhysicalDeviceMemoryProperties)(i->card, &p->memoryProperties);
    else
        VK_OF(i, vkGetPhysicalDeviceMemoryProperties2)(i->card, p);
}

static void do_heaps(void) {
    VkPhysicalDeviceMemoryProperties2 p = {0};
    char sizes[512] = "";
    memory_properties(instance_named(1), &p);
    for (uint32_t n = 0; n < p.memoryProperties.memoryHeapCount; n++) {
        VkMemoryHeap heap = p.memoryProperties.memoryHeaps[n];
        size_t length = strlen(sizes);
        if (heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
            snprintf(sizes + length, sizeof sizes - length, "%s%" PRIu64, length ? " " : "",
                     heap.size);
    }
    script_value(VK_SUCCESS, "%s", sizes);
}

static void do_budget(void) {
    const struct instance *i = instance_named(1);
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 p = {.pNext = &budget};
    VkResult result = has_extension(i, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME)
                          ? VK_SUCCESS
                          : VK_ERROR_EXTENSION_NOT_PRESENT;
    memory_properties(i, &p);
    script_value(result, "%" PRIu64 " %" PRIu64, budget.heapBudget[0], budget.heapUsage[0]);
}

static void do_largest(void) {
    const struct instance *i = instance_named(1);
    VkPhysicalDeviceMaintenance3Properties most = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &most};
    VK_OF(i, vkGetPhysicalDeviceProperties2)(i->card, &p);
    script_value(VK_SUCCESS, "%" PRIu64, most.maxMemoryAllocationSize);
}

// Other commands

static void do_whose(void) {
    const struct device *d = device_named(1);
    PFN_vkVoidFunction found = VK_AT(d, vkGetDeviceProcAddr)(d->handle, script_text(2));
    Dl_info info = {0};
    VkResult result = dladdr((void *)found, &info) ? VK_SUCCESS : VK_ERROR_UNKNOWN;
    const char *file = info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    script_value(result, "%s", file ? file + 1 : "");
}

static void do_forked(void) {
    const struct memory *m = memory_named(1);
    int ended = 0;
    pid_t child = fork();
    if (child == 0) {
        VK_AT(m->of, vkFreeMemory)(m->of->handle, m->handle, NULL);
        _exit(0);
    }
    waitpid(child, &ended, 0);
    script_answer(ended);
}

static void do_child(void) {
    const struct device *d = device_named(1);
    int ended = 0;
    pid_t child = fork();
    if (child == 0) {
        VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                     .allocationSize = script_number(2)};
        VkDeviceMemory memory;
        _exit(-VK_AT(d, vkAllocateMemory)(d->handle, &info, NULL, &memory));
    }
    waitpid(child, &ended, 0);
    script_answer(WIFSIGNALED(ended) ? WTERMSIG(ended) : -WEXITSTATUS(ended));
}

static void do_pid(void) {
    script_value(VK_SUCCESS, "%d", getpid());
}

static void do_exit(void) {
    exit((int)script_number(1));
}

static const struct script_verb verbs[] = {
    {"instance", do_instance}, {"end", do_end},
    {"device", do_device},     {"drop", do_drop},
    {"devices", do_devices},   {"alloc", do_alloc},
    {"exportable", do_alloc},  {"dedicated", do_dedicated},
    {"image", do_image},       {"import", do_import},
    {"host", do_host},         {"touch", do_touch},
    {"free", do_free},         {"nothing", do_nothing},
    {"storm", do_storm},       {"heaps", do_heaps},
    {"heaps2", do_heaps},      {"budget", do_budget},
    {"largest", do_largest},   {"dispatch", do_dispatch},
    {"whose", do_whose},       {"forked", do_forked},
    {"child", do_child},       {"context", do_context},
    {"buffer", do_buffer},     {"release", do_release},
    {"pid", do_pid},           {"exit", do_exit},
};

int main(int argc, char **argv) {
    printf("ready\n");
    fflush(stdout);
    script_run(argc, argv, verbs, sizeof verbs / sizeof verbs[0]);
    return 0;
}
