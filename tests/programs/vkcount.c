// SPDX-License-Identifier: Apache-2.0
// libvkcount.so: a Vulkan layer that counts the bytes of all memory that its driver has allocated,
// and does nothing else. The file that VKCOUNT names has two numbers of 8 bytes: the bytes that
// exist, and the most that ever existed. The tests use it as an oracle, so it shares no code with
// the library. While the file that VKLOST names exists, the device is lost: allocations fail.
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define DEVICES 64
#define BLOCKS 65536

static struct device {
    VkDevice handle;
    PFN_vkGetDeviceProcAddr next;
    PFN_vkAllocateMemory allocate;
    PFN_vkFreeMemory free;
    PFN_vkDestroyDevice destroy;
} devices[DEVICES];

static struct {
    VkDevice device;
    VkDeviceMemory memory;
    uint64_t bytes;
} blocks[BLOCKS];
static size_t n_blocks; // number of used blocks

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static PFN_vkGetInstanceProcAddr next_of_instance;
static PFN_vkEnumerateDeviceExtensionProperties next_extensions;
static PFN_vkGetPhysicalDeviceMemoryProperties2 next_memory_properties;

static struct { uint64_t live, peak; } * shown;

static void show(void) {
    const char *path = getenv("VKCOUNT");
    int fd = path && !shown ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    void *at = ftruncate(fd, sizeof *shown) == 0
                   ? mmap(NULL, sizeof *shown, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                   : MAP_FAILED;
    close(fd);
    if (at != MAP_FAILED)
        shown = at;
}

static void count(uint64_t more, uint64_t less) {
    if (!shown)
        return;
    shown->live += more - less;
    if (shown->live > shown->peak)
        shown->peak = shown->live;
}

static struct device *found(VkDevice handle) {
    for (size_t i = 0; i < DEVICES; i++)
        if (devices[i].handle == handle)
            return &devices[i];
    abort();
}

static int is_import(const VkMemoryAllocateInfo *info) {
    for (const VkBaseInStructure *s = info->pNext; s; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR ||
            s->sType == VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT)
            return 1;
    return 0;
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device, const VkMemoryAllocateInfo *info,
                                               const VkAllocationCallbacks *callbacks,
                                               VkDeviceMemory *memory) {
    pthread_mutex_lock(&lock);
    PFN_vkAllocateMemory next = found(device)->allocate;
    pthread_mutex_unlock(&lock);
    const char *lost = getenv("VKLOST");
    if (lost && access(lost, F_OK) == 0)
        return VK_ERROR_DEVICE_LOST;
    VkResult result = next(device, info, callbacks, memory);
    if (result != VK_SUCCESS || is_import(info))
        return result;
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < n_blocks && blocks[i].device)
        i++;
    if (i == BLOCKS)
        abort();
    if (i == n_blocks)
        n_blocks++;
    blocks[i].device = device;
    blocks[i].memory = *memory;
    blocks[i].bytes = info->allocationSize;
    count(info->allocationSize, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

// Forgets one block of a device, or all blocks if memory is VK_NULL_HANDLE.
static void forget(VkDevice device, VkDeviceMemory memory) {
    for (size_t i = 0; i < n_blocks; i++)
        if (blocks[i].device == device && (!memory || blocks[i].memory == memory)) {
            count(0, blocks[i].bytes);
            blocks[i].device = NULL;
        }
}

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice device, VkDeviceMemory memory,
                                              const VkAllocationCallbacks *callbacks) {
    pthread_mutex_lock(&lock);
    if (memory)
        forget(device, memory);
    PFN_vkFreeMemory next = found(device)->free;
    pthread_mutex_unlock(&lock);
    next(device, memory, callbacks);
}

static VKAPI_ATTR void VKAPI_CALL destroy(VkDevice device, const VkAllocationCallbacks *callbacks) {
    if (!device)
        return;
    pthread_mutex_lock(&lock);
    struct device *d = found(device);
    PFN_vkDestroyDevice next = d->destroy;
    forget(device, VK_NULL_HANDLE);
    memset(d, 0, sizeof *d);
    pthread_mutex_unlock(&lock);
    next(device, callbacks);
}

// Returns the loader's list of links, of an instance or a device.
static VkLayerInstanceCreateInfo *instance_link(const VkInstanceCreateInfo *info) {
    VkLayerInstanceCreateInfo *l = (void *)info->pNext;
    while (l && (l->sType != VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO ||
                 l->function != VK_LAYER_LINK_INFO))
        l = (void *)l->pNext;
    return l;
}

static VkLayerDeviceCreateInfo *device_link(const VkDeviceCreateInfo *info) {
    VkLayerDeviceCreateInfo *l = (void *)info->pNext;
    while (l && (l->sType != VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO ||
                 l->function != VK_LAYER_LINK_INFO))
        l = (void *)l->pNext;
    return l;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *callbacks,
                                                      VkInstance *instance) {
    VkLayerInstanceCreateInfo *link = instance_link(info);
    next_of_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    PFN_vkCreateInstance create =
        (PFN_vkCreateInstance)next_of_instance(VK_NULL_HANDLE, "vkCreateInstance");
    show();
    VkResult result = create(info, callbacks, instance);
    if (result != VK_SUCCESS)
        return result;
    // The function must be looked up now: later the loader would return the first layer's function.
    next_extensions = (PFN_vkEnumerateDeviceExtensionProperties)next_of_instance(
        *instance, "vkEnumerateDeviceExtensionProperties");
    next_memory_properties = (PFN_vkGetPhysicalDeviceMemoryProperties2)next_of_instance(
        *instance, "vkGetPhysicalDeviceMemoryProperties2");
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice card,
                                                    const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *callbacks,
                                                    VkDevice *device) {
    VkLayerDeviceCreateInfo *link = device_link(info);
    PFN_vkGetInstanceProcAddr of_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    PFN_vkGetDeviceProcAddr next = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    PFN_vkCreateDevice create = (PFN_vkCreateDevice)of_instance(VK_NULL_HANDLE, "vkCreateDevice");
    VkResult result = create(card, info, callbacks, device);
    if (result != VK_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    struct device *d = found(VK_NULL_HANDLE);
    d->handle = *device;
    d->next = next;
    d->allocate = (PFN_vkAllocateMemory)next(*device, "vkAllocateMemory");
    d->free = (PFN_vkFreeMemory)next(*device, "vkFreeMemory");
    d->destroy = (PFN_vkDestroyDevice)next(*device, "vkDestroyDevice");
    pthread_mutex_unlock(&lock);
    return result;
}

// VK_EXT_memory_budget

static VKAPI_ATTR VkResult VKAPI_CALL extensions(VkPhysicalDevice card, const char *layer,
                                                 uint32_t *count, VkExtensionProperties *all) {
    uint32_t room = all ? *count : 0;
    VkResult result = next_extensions(card, layer, count, all);
    if (result != VK_SUCCESS)
        return result;
    if (all && *count == room)
        return VK_INCOMPLETE;
    if (all)
        all[*count] = (VkExtensionProperties){VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, 1};
    ++*count;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL memory_properties(VkPhysicalDevice card,
                                                    VkPhysicalDeviceMemoryProperties2 *p) {
    next_memory_properties(card, p);
    for (VkBaseOutStructure *s = p->pNext; s; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT) {
            VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = (void *)s;
            for (uint32_t i = 0; i < p->memoryProperties.memoryHeapCount; i++) {
                budget->heapBudget[i] = p->memoryProperties.memoryHeaps[i].size;
                budget->heapUsage[i] = shown ? shown->live : 0;
            }
        }
}

static PFN_vkVoidFunction of_budget(const char *name) {
    if (!getenv("VKCOUNT_BUDGET"))
        return NULL;
    if (strcmp(name, "vkEnumerateDeviceExtensionProperties") == 0)
        return (PFN_vkVoidFunction)extensions;
    if (strcmp(name, "vkGetPhysicalDeviceMemoryProperties2") == 0 ||
        strcmp(name, "vkGetPhysicalDeviceMemoryProperties2KHR") == 0)
        return (PFN_vkVoidFunction)memory_properties;
    return NULL;
}

static PFN_vkVoidFunction of_ours(const char *name);

__attribute__((visibility("default"))) VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL
vkGetDeviceProcAddr(VkDevice device, const char *name) {
    PFN_vkVoidFunction ours = of_ours(name);
    if (ours)
        return ours;
    pthread_mutex_lock(&lock);
    PFN_vkGetDeviceProcAddr next = found(device)->next;
    pthread_mutex_unlock(&lock);
    return next(device, name);
}

__attribute__((visibility("default"))) VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL
vkGetInstanceProcAddr(VkInstance instance, const char *name) {
    PFN_vkVoidFunction ours = of_ours(name);
    if (!ours && strcmp(name, "vkCreateInstance") == 0)
        ours = (PFN_vkVoidFunction)create_instance;
    if (!ours && strcmp(name, "vkCreateDevice") == 0)
        ours = (PFN_vkVoidFunction)create_device;
    if (!ours && strcmp(name, "vkGetInstanceProcAddr") == 0)
        ours = (PFN_vkVoidFunction)vkGetInstanceProcAddr;
    if (!ours)
        ours = of_budget(name);
    return ours || !instance ? ours : next_of_instance(instance, name);
}

static PFN_vkVoidFunction of_ours(const char *name) {
    static const struct {
        const char *name;
        PFN_vkVoidFunction function;
    } wrapped[] = {
        {"vkAllocateMemory", (PFN_vkVoidFunction)allocate},
        {"vkFreeMemory", (PFN_vkVoidFunction)free_memory},
        {"vkDestroyDevice", (PFN_vkVoidFunction)destroy},
        {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)vkGetDeviceProcAddr},
    };
    for (size_t i = 0; i < sizeof wrapped / sizeof *wrapped; i++)
        if (strcmp(name, wrapped[i].name) == 0)
            return wrapped[i].function;
    return NULL;
}
