// SPDX-License-Identifier: Apache-2.0
// The part of Vulkan's interface by which programs allocate device memory, make logical devices and
// ask for memory sizes; and the interface between the loader and its layers. The declarations are
// our own, after the specification and the loader's LoaderLayerInterface. Structures have short
// forms of the original names. Members that the library does not read are combined. All files of
// cshim/vulkan use it.
#ifndef GA_VULKAN_H
#define GA_VULKAN_H

#include "core/os.h"

typedef int32_t ga_vk_result;
typedef uint64_t ga_vk_size;
typedef uint64_t
    ga_vk_memory; // VkDeviceMemory; the driver decides whether it is a number or an address
typedef struct ga_vk_instance_object *ga_vk_instance;
typedef struct ga_vk_physical_object *ga_vk_physical;
typedef struct ga_vk_device_object *ga_vk_device;
typedef void (*ga_vk_function)(void);

typedef ga_vk_function ga_vk_get_instance(ga_vk_instance instance, const char *name);
typedef ga_vk_function ga_vk_get_device(ga_vk_device device, const char *name);

#define GA_VK_SUCCESS 0
#define GA_VK_INCOMPLETE 5
#define GA_VK_OUT_OF_HOST_MEMORY (-1)
#define GA_VK_OUT_OF_DEVICE_MEMORY (-2)
#define GA_VK_INITIALIZATION_FAILED (-3)
#define GA_VK_LAYER_NOT_PRESENT (-6)
#define GA_VK_EXTENSION_NOT_PRESENT (-7)

#define GA_VK_API(major, minor) ((uint32_t)(major) << 22 | (uint32_t)(minor) << 12)

// VkStructureType
enum ga_vk_type {
    GA_VK_INSTANCE_INFO = 1,
    GA_VK_LOADER_INSTANCE_INFO = 47,
    GA_VK_LOADER_DEVICE_INFO = 48,
    GA_VK_PROPERTIES_2 = 1000059001,
    GA_VK_ALLOCATE_FLAGS_INFO = 1000060000,
    GA_VK_DEVICE_GROUP_INFO = 1000070001,
    GA_VK_ID_PROPERTIES = 1000071004,
    GA_VK_IMPORT_FD = 1000074000,
    GA_VK_IMPORT_HOST_POINTER = 1000178000,
    GA_VK_PCI_PROPERTIES = 1000212000,
    GA_VK_BUDGET_PROPERTIES = 1000237000,
};

// First members of each structure that extends another.
struct ga_vk_any {
    int32_t type;
    const struct ga_vk_any *next;
};

// VkInstanceCreateInfo
struct ga_vk_application {
    int32_t type;
    const void *next;
    const char *name;
    uint32_t version;
    const char *engine;
    uint32_t engine_version, api_version;
};
struct ga_vk_instance_info {
    int32_t type;
    const struct ga_vk_any *next;
    uint32_t flags;
    const struct ga_vk_application *application;
    uint32_t layers;
    const char *const *layer;
    uint32_t extensions;
    const char *const *extension;
};

// First members of VkDeviceCreateInfo.
struct ga_vk_device_info {
    int32_t type;
    const struct ga_vk_any *next;
};
// VkDeviceGroupDeviceCreateInfo
struct ga_vk_device_group {
    int32_t type;
    const struct ga_vk_any *next;
    uint32_t count;
    const ga_vk_physical *physical;
};
#define GA_VK_GROUP 32 // VK_MAX_DEVICE_GROUP_SIZE

// VkMemoryAllocateInfo
struct ga_vk_memory_info {
    int32_t type;
    const struct ga_vk_any *next;
    ga_vk_size size;
    uint32_t memory_type;
};
// VkMemoryAllocateFlagsInfo
struct ga_vk_allocate_flags {
    int32_t type;
    const struct ga_vk_any *next;
    uint32_t flags, device_mask;
};
#define GA_VK_ALLOCATE_DEVICE_MASK 1u
// VkImportMemoryFdInfoKHR, and the first members of the other structures that begin with a handle's
// type
struct ga_vk_import {
    int32_t type;
    const struct ga_vk_any *next;
    uint32_t handle_type; // 0: the allocation imports nothing
};

// VkPhysicalDeviceProperties; reserved stands for its limits and sparse properties
struct ga_vk_properties {
    uint32_t api_version, driver_version, vendor, device;
    int32_t type;
    char name[256];
    uint8_t cache[16];
    uint64_t reserved[66];
};
#define GA_VK_TYPE_CPU 4
#define GA_VK_VENDOR_AMD 0x1002u
#define GA_VK_VENDOR_NVIDIA 0x10deu
struct ga_vk_properties_2 {
    int32_t type;
    void *next;
    struct ga_vk_properties properties;
};
// VkPhysicalDeviceIDProperties
struct ga_vk_id {
    int32_t type;
    void *next;
    uint8_t device[16], driver[16], luid[8];
    uint32_t node_mask, luid_valid;
};
// VkPhysicalDevicePCIBusInfoPropertiesEXT
struct ga_vk_pci {
    int32_t type;
    void *next;
    uint32_t domain, bus, device, function;
};

// VkPhysicalDeviceMemoryProperties
#define GA_VK_HEAPS 16
#define GA_VK_MEMORY_TYPES 32
#define GA_VK_HEAP_DEVICE_LOCAL 1u
struct ga_vk_memory_properties {
    uint32_t types;
    struct {
        uint32_t flags, heap;
    } type[GA_VK_MEMORY_TYPES];
    uint32_t heaps;
    struct ga_vk_heap {
        ga_vk_size size;
        uint32_t flags;
    } heap[GA_VK_HEAPS];
};
struct ga_vk_memory_properties_2 {
    int32_t type;
    struct ga_vk_any *next;
    struct ga_vk_memory_properties properties;
};
// VkPhysicalDeviceMemoryBudgetPropertiesEXT
struct ga_vk_budget {
    int32_t type;
    void *next;
    ga_vk_size budget[GA_VK_HEAPS], usage[GA_VK_HEAPS];
};

// VkExtensionProperties, VkLayerProperties
struct ga_vk_extension {
    char name[256];
    uint32_t version;
};
struct ga_vk_layer {
    char name[256];
    uint32_t api_version, version;
    char description[256];
};

#define GA_VK_LAYER_NAME "VK_LAYER_GPUARB_arbiter" // the manifest has the same name

// VkNegotiateLayerInterface
struct ga_vk_negotiation {
    int32_t type;
    void *next;
    uint32_t version;
    ga_vk_get_instance *get_instance;
    ga_vk_get_device *get_device;
    ga_vk_get_instance *get_physical;
};
#define GA_VK_NEGOTIATION 1     // value of ga_vk_negotiation.type
#define GA_VK_LAYER_INTERFACE 2 // version of the interface that this layer implements

// VkLayerInstanceCreateInfo and VkLayerDeviceCreateInfo, which point to the next layer
struct ga_vk_instance_link {
    struct ga_vk_instance_link *next;
    ga_vk_get_instance *get_instance, *get_physical;
};
struct ga_vk_device_link {
    struct ga_vk_device_link *next;
    ga_vk_get_instance *get_instance;
    ga_vk_get_device *get_device;
};
struct ga_vk_loader_info {
    int32_t type;
    const struct ga_vk_any *next;
    int32_t function; // kind of content; 0: a link
    union {
        struct ga_vk_instance_link *instance;
        struct ga_vk_device_link *device;
    } link;
};

// Types of the functions in layer.def, and declarations of the functions that the wrappers call.
#define GA_LAYER(symbol, scope, returns, parameters, arguments, function)                          \
    typedef returns GA_FN_##symbol parameters;                                                     \
    returns function parameters;
#define GA_ASKS(symbol, returns, parameters) typedef returns GA_FN_##symbol parameters;
#include "vulkan/layer.def"
#undef GA_LAYER
#undef GA_ASKS

#endif
