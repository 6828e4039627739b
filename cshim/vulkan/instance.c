// SPDX-License-Identifier: Apache-2.0
// Wraps the calls that make and destroy instances. An instance allocates nothing that is counted;
// only its next layer is recorded.
#include "hook/library.h"
#include "vulkan/chain.h"

// Extensions that report the identity of a device. A program of Vulkan 1.0 has them only if it asks
// for them, so the library adds them. They do not change the program's behaviour.
static const char *const identities[] = {"VK_KHR_get_physical_device_properties2",
                                         "VK_KHR_external_memory_capabilities"};
#define IDENTITIES (sizeof identities / sizeof *identities)
#define EXTENSIONS 64 // maximum of a program's extensions; with more, none are added

static bool has(const struct ga_vk_instance_info *info, const char *name) {
    for (uint32_t i = 0; i < info->extensions; i++)
        if (ga_os_equal(info->extension[i], name))
            return true;
    return false;
}

// Adds the missing extensions to those that the program asks for. False: none are missing, or there
// is no room.
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
        loader->link.instance = next; // the layers of the failed call have changed it
        result = real(info, allocator, instance);
    }
    if (result == GA_VK_SUCCESS)
        ga_vulkan_chain_register_instance(record, *instance);
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
        ga_vulkan_chain_release(&record->link);
    return result;
}

void ga_vulkan_instance_destroy(ga_vk_instance instance, const void *allocator) {
    struct ga_vulkan_instance *record = ga_vulkan_chain_instance(instance);
    if (!record)
        return;
    ga_vulkan_chain_unregister(
        &record->link); // its key may belong to a new instance before the call returns
    if (record->next.vkDestroyInstance)
        record->next.vkDestroyInstance(instance, allocator);
    ga_vulkan_chain_release(&record->link);
}
