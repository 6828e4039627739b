// SPDX-License-Identifier: Apache-2.0
#include "vulkan/device.h"

#include "core/device.h"
#include "core/driver.h"
#include "core/session.h"

static bool begins(const char *text, const char *with) {
    while (*with && *text == *with) {
        text++;
        with++;
    }
    return *with == '\0';
}

// What the configuration calls the driver of a device that computes on the processor; NULL: it has
// no word for it.
static const char *driver_of(const struct ga_vk_properties *properties) {
    return begins(properties->name, "llvmpipe") ? "llvmpipe" : NULL;
}

static bool read_uuid(const struct ga_vulkan_instance *instance, ga_vk_physical physical,
                      uint8_t identity[GA_UUID_SIZE]) {
    static const uint8_t none[GA_UUID_SIZE];
    // Vulkan 1.1, or the extension that it has this from
    GA_FN_vkGetPhysicalDeviceProperties2 *get =
        instance->next.vkGetPhysicalDeviceProperties2
            ? instance->next.vkGetPhysicalDeviceProperties2
            : instance->next.vkGetPhysicalDeviceProperties2KHR;
    struct ga_vk_id id = {.type = GA_VK_ID_PROPERTIES};
    struct ga_vk_properties_2 properties = {.type = GA_VK_PROPERTIES_2, .next = &id};
    if (!get)
        return false;
    get(physical, &properties);
    ga_os_copy(identity, id.device, GA_UUID_SIZE);
    return !ga_device_same(identity, none);
}

void ga_vulkan_device_read(struct ga_root *root, const struct ga_vulkan_instance *instance,
                           ga_vk_physical physical, struct ga_vulkan_part *part) {
    struct ga_vk_properties properties = {.type = 0};
    GA_FN_vkGetPhysicalDeviceProperties *get = instance->next.vkGetPhysicalDeviceProperties;
    *part = (struct ga_vulkan_part){.known = false};
    if (!get)
        return;
    get(physical, &properties);
    part->processor = properties.type == GA_VK_TYPE_CPU;
    part->must = properties.vendor == GA_VK_VENDOR_NVIDIA;
    part->known = part->processor || read_uuid(instance, physical, part->identity);
    if (part->processor)
        ga_driver_device(root, driver_of(&properties), part->identity);
}

// Vulkan comes to devices of every vendor, and to the processor. Of some no daemon ever hears:
// these are the driver's alone, also where the loss of a daemon is closed.
int ga_vulkan_device_used(struct ga_root *root, const struct ga_vulkan_part *part) {
    if (!part->known)
        return -1;
    int number = ga_device_find(root, part->identity);
    if (GA_UNLIKELY(number < 0)) {
        number = ga_device_number(root, part->identity);
        if (number >= 0)
            ga_device_declare(root, (uint32_t)number, 0);
    }
    if (number >= 0 && !part->must && ga_session_lacks(root, (uint32_t)number))
        return -1;
    return number;
}
