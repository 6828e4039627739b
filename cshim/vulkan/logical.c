// SPDX-License-Identifier: Apache-2.0
// Wraps the calls that make and destroy logical devices. A logical device takes a slot of each of
// its physical devices, or is refused.
#include "core/admit.h"
#include "core/device.h"
#include "core/driver.h"
#include "core/root.h"
#include "hook/library.h"
#include "vulkan/chain.h"
#include "vulkan/device.h"
#include "vulkan/memory.h"

// Adds a heap to the totals of the devices whose memory it is. The heap of a CPU device is not
// added if its memory is counted on another device.
static void add_heap(struct ga_vulkan_device *record, const struct ga_vk_heap *heap) {
    for (uint32_t i = 0; i < record->physical_count; i++) {
        struct ga_vulkan_facts *facts = &record->facts[i];
        bool own = !facts->is_cpu || ga_device_same(facts->identity, ga_driver_processor);
        if (own && ga_vulkan_device_has_heap(facts, heap->flags))
            facts->total += heap->size;
    }
}

static void read_heaps(struct ga_vulkan_device *record, struct ga_vulkan_instance *instance,
                       ga_vk_physical physical) {
    struct ga_vk_memory_properties memory = {.types = 0};
    if (instance->next.vkGetPhysicalDeviceMemoryProperties)
        instance->next.vkGetPhysicalDeviceMemoryProperties(physical, &memory);
    for (uint32_t i = 0; i < memory.types && i < GA_VK_MEMORY_TYPES; i++)
        record->heap_of[i] = (uint8_t)(memory.type[i].heap % GA_VK_HEAPS);
    for (uint32_t i = 0; i < memory.heaps && i < GA_VK_HEAPS; i++) {
        record->heap_flags[i] = memory.heap[i].flags;
        add_heap(record, &memory.heap[i]);
    }
    record->types = memory.types < GA_VK_MEMORY_TYPES ? memory.types : GA_VK_MEMORY_TYPES;
}

// Reads the facts about the physical devices of a logical device. The devices of a group have the
// same heaps.
static void read_physicals(struct ga_root *root, struct ga_vulkan_device *record,
                           struct ga_vulkan_instance *instance, ga_vk_physical physical,
                           const struct ga_vk_device_info *info) {
    const struct ga_vk_device_group *group =
        ga_vulkan_chain_find(info->next, GA_VK_DEVICE_GROUP_INFO);
    bool several = group && group->count > 0 && group->count <= GA_VK_GROUP;
    record->physical_count = several ? group->count : 1;
    for (uint32_t i = 0; i < record->physical_count; i++)
        ga_vulkan_device_read(root, instance, several ? group->physical[i] : physical,
                              &record->facts[i]);
    read_heaps(record, instance, physical);
    ga_vulkan_memory_start(record);
}

// Takes a slot of each physical device. False: refused, and no slot is taken.
static bool ask(struct ga_root *root, struct ga_vulkan_device *record) {
    bool wanted[GA_DEVICES] = {false};
    bool any = false;
    for (uint32_t i = 0; i < record->physical_count; i++) {
        int number = ga_vulkan_device_number(root, &record->facts[i]);
        if (number < 0 || ga_vulkan_device_is_exempt(root, &record->facts[i], number))
            continue;
        wanted[number] = true;
        any = true;
    }
    if (!any)
        return true;
    if (!ga_slots_acquire(root, &record->slots, wanted))
        return false;
    record->generation = atomic_load(&root->generation);
    return true;
}

// Releases the slots of a logical device. A forked child has none: there the generation differs.
static void release_slots(struct ga_root *root, const struct ga_vulkan_device *record) {
    if (root && record->generation == atomic_load(&root->generation))
        ga_slots_release(root, &record->slots);
}

static ga_vk_result create(struct ga_vulkan_device *record, struct ga_vulkan_instance *instance,
                           struct ga_vk_loader_info *loader, ga_vk_physical physical,
                           const struct ga_vk_device_info *info, const void *allocator,
                           ga_vk_device *device) {
    struct ga_root *root = ga_library_disabled() ? NULL : ga_root_get();
    struct ga_vk_device_link *link = loader->link.device;
    GA_FN_vkCreateDevice *real =
        (GA_FN_vkCreateDevice *)link->get_instance(instance->handle, "vkCreateDevice");
    if (!real || (!root && !ga_library_disabled() && ga_root_denies()))
        return GA_VK_INITIALIZATION_FAILED;
    record->get = link->get_device;
    if (root)
        read_physicals(root, record, instance, physical, info);
    ga_vk_result result = GA_VK_INITIALIZATION_FAILED;
    record->slots = (struct ga_slots){.full = 0};
    do {
        if (root && !ask(root, record))
            return result;
        loader->link.device = link->next;
        result = real(physical, info, allocator, device);
        if (root)
            ga_slots_made(root, &record->slots);
        if (result == GA_VK_SUCCESS)
            ga_vulkan_chain_register_device(record, *device);
        else
            release_slots(root, record);
    } while (ga_admit_again(ga_slots_any(&record->slots) ? root : NULL, &record->slots.full,
                            result == GA_VK_OUT_OF_DEVICE_MEMORY));
    return result;
}

ga_vk_result ga_vulkan_logical_create(ga_vk_physical physical, const struct ga_vk_device_info *info,
                                      const void *allocator, ga_vk_device *device) {
    struct ga_vk_loader_info *loader = ga_vulkan_chain_loader(info->next, GA_VK_LOADER_DEVICE_INFO);
    struct ga_vulkan_instance *instance = ga_vulkan_chain_instance(physical);
    if (!loader || !instance)
        return GA_VK_INITIALIZATION_FAILED;
    struct ga_vulkan_device *record = ga_vulkan_chain_add_device();
    if (!record)
        return GA_VK_OUT_OF_HOST_MEMORY;
    ga_vk_result result = create(record, instance, loader, physical, info, allocator, device);
    if (result != GA_VK_SUCCESS)
        ga_vulkan_chain_release(&record->link);
    return result;
}

void ga_vulkan_logical_destroy(ga_vk_device device, const void *allocator) {
    struct ga_vulkan_device *record = ga_vulkan_chain_device(device);
    if (!record)
        return;
    ga_vulkan_chain_unregister(
        &record->link); // its key may belong to a new device before the call returns
    if (record->next.vkDestroyDevice)
        record->next.vkDestroyDevice(device, allocator);
    struct ga_root *root = record->physical_count ? ga_root_get() : NULL;
    if (root)
        ga_vulkan_memory_sweep(root, record);
    release_slots(root, record);
    ga_vulkan_chain_release(&record->link);
}
