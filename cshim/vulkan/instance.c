// SPDX-License-Identifier: Apache-2.0
// Instances: nothing is taken by them; their chains are remembered.
#include "hook/library.h"
#include "vulkan/chain.h"

// A program of Vulkan 1.0 does not have what says which device is which, unless it has asked for it
// by name. It is no harm to it.
static const char *const identities[] = {"VK_KHR_get_physical_device_properties2",
                                         "VK_KHR_external_memory_capabilities"};
#define IDENTITIES (sizeof identities / sizeof *identities)
#define EXTENSIONS 64 // of a program; with more it stays as it is

static bool has(const struct ga_vk_instance_info *info, const char *name) {
    for (uint32_t i = 0; i < info->extensions; i++)
        if (ga_os_equal(info->extension[i], name))
            return true;
    return false;
}

// What is missing behind what the program asks for. False: nothing, or there is no room.
static bool add_identities(struct ga_vk_instance_info *info,
                           const char *names[EXTENSIONS + IDENTITIES]) {
    const struct ga_vk_application *application = info->application;
    uint32_t count = info->extensions;
    if ((application && application->api_version >= GA_VK_API(1, 1)) || count > EXTENSIONS)
        return false;
    for (uint32_t i = 0; i < count; i++)
        names[i] = info->extension[i];
    for (size_t i = 0; i < IDENTITIES; i++)
        if (!has(info, identities[i]))
            names[count++] = identities[i];
    bool more = count > info->extensions;
    info->extensions = count;
    info->extension = names;
    return more;
}

static ga_vk_result create(struct ga_vulkan_instance *record, struct ga_vk_loader_info *loader,
                           const struct ga_vk_instance_info *info, const void *allocator,
                           ga_vk_instance *instance) {
    struct ga_vk_instance_link *next = loader->link.instance->next;
    struct ga_vk_instance_info with = *info;
    const char *names[EXTENSIONS + IDENTITIES];
    ga_vk_result result = GA_VK_EXTENSION_NOT_PRESENT;
    GA_FN_vkCreateInstance *real = (GA_FN_vkCreateInstance *)record->get(NULL, "vkCreateInstance");
    if (!real)
        return GA_VK_INITIALIZATION_FAILED;
    loader->link.instance = next;
    if (!ga_library_disabled() && add_identities(&with, names))
        result = real(&with, allocator, instance);
    if (result == GA_VK_EXTENSION_NOT_PRESENT) {
        loader->link.instance = next; // which those behind have moved on
        result = real(info, allocator, instance);
    }
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
