// SPDX-License-Identifier: Apache-2.0
// Compares the declarations of vulkan/vulkan.h with the headers of Vulkan and its loader: numbers,
// and offsets of the members that the library uses. This file is compiled, but never run.
#include <stddef.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#include "vulkan/vulkan.h"

#define NUMBER(own, theirs) _Static_assert((own) == (theirs), #theirs)
#define AT(own, member, theirs, their_member)                                                      \
    _Static_assert(offsetof(struct own, member) == offsetof(theirs, their_member) &&               \
                       sizeof(((struct own *)0)->member) == sizeof(((theirs *)0)->their_member),   \
                   #theirs "." #their_member)
#define WHOLE(own, theirs) _Static_assert(sizeof(struct own) == sizeof(theirs), #theirs)

NUMBER(GA_VK_SUCCESS, VK_SUCCESS);
NUMBER(GA_VK_INCOMPLETE, VK_INCOMPLETE);
NUMBER(GA_VK_OUT_OF_HOST_MEMORY, VK_ERROR_OUT_OF_HOST_MEMORY);
NUMBER(GA_VK_OUT_OF_DEVICE_MEMORY, VK_ERROR_OUT_OF_DEVICE_MEMORY);
NUMBER(GA_VK_INITIALIZATION_FAILED, VK_ERROR_INITIALIZATION_FAILED);
NUMBER(GA_VK_LAYER_NOT_PRESENT, VK_ERROR_LAYER_NOT_PRESENT);
NUMBER(GA_VK_EXTENSION_NOT_PRESENT, VK_ERROR_EXTENSION_NOT_PRESENT);
NUMBER(GA_VK_API(1, 1), VK_API_VERSION_1_1);
NUMBER(GA_VK_LOADER_INSTANCE_INFO, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
NUMBER(GA_VK_LOADER_DEVICE_INFO, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
NUMBER(GA_VK_PROPERTIES_2, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2);
NUMBER(GA_VK_ALLOCATE_FLAGS_INFO, VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO);
NUMBER(GA_VK_DEVICE_GROUP_INFO, VK_STRUCTURE_TYPE_DEVICE_GROUP_DEVICE_CREATE_INFO);
NUMBER(GA_VK_ID_PROPERTIES, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES);
NUMBER(GA_VK_IMPORT_FD, VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR);
NUMBER(GA_VK_IMPORT_HOST_POINTER, VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT);
NUMBER(GA_VK_PCI_PROPERTIES, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT);
NUMBER(GA_VK_BUDGET_PROPERTIES, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT);
NUMBER(GA_VK_ALLOCATE_DEVICE_MASK, VK_MEMORY_ALLOCATE_DEVICE_MASK_BIT);
NUMBER(GA_VK_GROUP, VK_MAX_DEVICE_GROUP_SIZE);
NUMBER(GA_VK_TYPE_CPU, VK_PHYSICAL_DEVICE_TYPE_CPU);
NUMBER(GA_VK_HEAPS, VK_MAX_MEMORY_HEAPS);
NUMBER(GA_VK_MEMORY_TYPES, VK_MAX_MEMORY_TYPES);
NUMBER(GA_VK_HEAP_DEVICE_LOCAL, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT);
NUMBER(GA_VK_NEGOTIATION, LAYER_NEGOTIATE_INTERFACE_STRUCT);
NUMBER(GA_VK_LAYER_INTERFACE, CURRENT_LOADER_LAYER_INTERFACE_VERSION);
NUMBER(VK_LAYER_LINK_INFO, 0);
NUMBER(sizeof(ga_vk_memory), sizeof(VkDeviceMemory));

WHOLE(ga_vk_any, VkBaseInStructure);
AT(ga_vk_application, api_version, VkApplicationInfo, apiVersion);
WHOLE(ga_vk_instance_info, VkInstanceCreateInfo);
AT(ga_vk_instance_info, next, VkInstanceCreateInfo, pNext);
AT(ga_vk_instance_info, application, VkInstanceCreateInfo, pApplicationInfo);
AT(ga_vk_instance_info, extensions, VkInstanceCreateInfo, enabledExtensionCount);
AT(ga_vk_instance_info, extension, VkInstanceCreateInfo, ppEnabledExtensionNames);
AT(ga_vk_device_info, next, VkDeviceCreateInfo, pNext);
AT(ga_vk_device_group, count, VkDeviceGroupDeviceCreateInfo, physicalDeviceCount);
AT(ga_vk_device_group, physical, VkDeviceGroupDeviceCreateInfo, pPhysicalDevices);
AT(ga_vk_memory_info, next, VkMemoryAllocateInfo, pNext);
AT(ga_vk_memory_info, size, VkMemoryAllocateInfo, allocationSize);
AT(ga_vk_memory_info, memory_type, VkMemoryAllocateInfo, memoryTypeIndex);
AT(ga_vk_allocate_flags, flags, VkMemoryAllocateFlagsInfo, flags);
AT(ga_vk_allocate_flags, device_mask, VkMemoryAllocateFlagsInfo, deviceMask);
AT(ga_vk_import, handle_type, VkImportMemoryFdInfoKHR, handleType);
AT(ga_vk_import, handle_type, VkImportMemoryHostPointerInfoEXT, handleType);
WHOLE(ga_vk_properties, VkPhysicalDeviceProperties);
AT(ga_vk_properties, vendor, VkPhysicalDeviceProperties, vendorID);
AT(ga_vk_properties, type, VkPhysicalDeviceProperties, deviceType);
AT(ga_vk_properties, name, VkPhysicalDeviceProperties, deviceName);
WHOLE(ga_vk_properties_2, VkPhysicalDeviceProperties2);
AT(ga_vk_properties_2, properties, VkPhysicalDeviceProperties2, properties);
WHOLE(ga_vk_id, VkPhysicalDeviceIDProperties);
AT(ga_vk_id, device, VkPhysicalDeviceIDProperties, deviceUUID);
WHOLE(ga_vk_pci, VkPhysicalDevicePCIBusInfoPropertiesEXT);
AT(ga_vk_pci, domain, VkPhysicalDevicePCIBusInfoPropertiesEXT, pciDomain);
AT(ga_vk_pci, function, VkPhysicalDevicePCIBusInfoPropertiesEXT, pciFunction);
WHOLE(ga_vk_extension, VkExtensionProperties);
WHOLE(ga_vk_memory_properties, VkPhysicalDeviceMemoryProperties);
AT(ga_vk_memory_properties, type, VkPhysicalDeviceMemoryProperties, memoryTypes);
AT(ga_vk_memory_properties, type[1].heap, VkPhysicalDeviceMemoryProperties,
   memoryTypes[1].heapIndex);
AT(ga_vk_memory_properties, heaps, VkPhysicalDeviceMemoryProperties, memoryHeapCount);
AT(ga_vk_memory_properties, heap, VkPhysicalDeviceMemoryProperties, memoryHeaps);
AT(ga_vk_memory_properties, heap[1].flags, VkPhysicalDeviceMemoryProperties, memoryHeaps[1].flags);
WHOLE(ga_vk_memory_properties_2, VkPhysicalDeviceMemoryProperties2);
AT(ga_vk_memory_properties_2, properties, VkPhysicalDeviceMemoryProperties2, memoryProperties);
AT(ga_vk_budget, budget, VkPhysicalDeviceMemoryBudgetPropertiesEXT, heapBudget);
AT(ga_vk_budget, usage, VkPhysicalDeviceMemoryBudgetPropertiesEXT, heapUsage);
WHOLE(ga_vk_layer, VkLayerProperties);
AT(ga_vk_layer, api_version, VkLayerProperties, specVersion);
AT(ga_vk_layer, version, VkLayerProperties, implementationVersion);
AT(ga_vk_layer, description, VkLayerProperties, description);
WHOLE(ga_vk_negotiation, VkNegotiateLayerInterface);
AT(ga_vk_negotiation, version, VkNegotiateLayerInterface, loaderLayerInterfaceVersion);
AT(ga_vk_negotiation, get_instance, VkNegotiateLayerInterface, pfnGetInstanceProcAddr);
AT(ga_vk_negotiation, get_device, VkNegotiateLayerInterface, pfnGetDeviceProcAddr);
AT(ga_vk_negotiation, get_physical, VkNegotiateLayerInterface, pfnGetPhysicalDeviceProcAddr);
AT(ga_vk_instance_link, get_instance, VkLayerInstanceLink, pfnNextGetInstanceProcAddr);
AT(ga_vk_device_link, get_instance, VkLayerDeviceLink, pfnNextGetInstanceProcAddr);
AT(ga_vk_device_link, get_device, VkLayerDeviceLink, pfnNextGetDeviceProcAddr);
AT(ga_vk_loader_info, function, VkLayerInstanceCreateInfo, function);
AT(ga_vk_loader_info, link.instance, VkLayerInstanceCreateInfo, u.pLayerInfo);
AT(ga_vk_loader_info, link.device, VkLayerDeviceCreateInfo, u.pLayerInfo);
