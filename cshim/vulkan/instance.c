// SPDX-License-Identifier: Apache-2.0
#include "vulkan/instance.h"

#include "vulkan/chain.h"

static ga_vk_result create(struct ga_vulkan_instance *record, struct ga_vk_loader_info *loader,
                           const struct ga_vk_instance_info *info, const void *allocator,
                           ga_vk_instance *instance) {
    GA_FN_vkCreateInstance *real = (GA_FN_vkCreateInstance *)record->get(NULL, "vkCreateInstance");
    if (!real)
        return GA_VK_INITIALIZATION_FAILED;
    loader->link.instance = loader->link.instance->next;
    ga_vk_result result = real(info, allocator, instance);
    if (result == GA_VK_SUCCESS)
        ga_vulkan_chain_show_instance(record, *instance);
    return result;
}

ga_vk_result ga_vulkan_instance_create(const struct ga_vk_instance_info *info,
                                       const void *allocator, ga_vk_instance *instance) {
    struct ga_vk_loader_info *loader =
        ga_vulkan_chain_loader(info->next, GA_VK_LOADER_INSTANCE_INFO);
    if (!loader)
        return GA_VK_INITIALIZATION_FAILED;
    struct ga_vulkan_instance *record = ga_vulkan_chain_add_instance();
    if (!record)
        return GA_VK_OUT_OF_HOST_MEMORY;
    record->get = loader->link.instance->get_instance;
    ga_vk_result result = create(record, loader, info, allocator, instance);
    if (result != GA_VK_SUCCESS)
        ga_vulkan_chain_drop(&record->link);
    return result;
}

void ga_vulkan_instance_destroy(ga_vk_instance instance, const void *allocator) {
    struct ga_vulkan_instance *record = ga_vulkan_chain_instance(instance);
    if (!record)
        return;
    ga_vulkan_chain_hide(&record->link); // its key may be another one's before the call returns
    if (record->next.vkDestroyInstance)
        record->next.vkDestroyInstance(instance, allocator);
    ga_vulkan_chain_drop(&record->link);
}
