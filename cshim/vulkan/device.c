// SPDX-License-Identifier: Apache-2.0
#include "vulkan/device.h"

#include "core/device.h"
#include "core/driver.h"
#include "core/session.h"
#include "vulkan/identity.h"

// What a physical device is stays so as long as its instance is there. False: it was not asked yet.
static bool recall(const struct ga_vulkan_instance *instance, ga_vk_physical physical,
                   struct ga_vulkan_part *part) {
    for (size_t i = 0; i < GA_VULKAN_KNOWN; i++) {
        const struct ga_vulkan_known *known = &instance->known[i];
        if (atomic_load_explicit(&known->physical, memory_order_acquire) == (uintptr_t)physical) {
            *part = known->part;
            return true;
        }
    }
    return false;
}

// Where there is no room it is asked again.
static void remember(struct ga_vulkan_instance *instance, ga_vk_physical physical,
                     const struct ga_vulkan_part *part) {
    for (size_t i = 0; i < GA_VULKAN_KNOWN; i++) {
        struct ga_vulkan_known *known = &instance->known[i];
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&known->physical, &none, GA_VULKAN_FILLING))
            continue;
        known->part = *part;
        atomic_store_explicit(&known->physical, (uintptr_t)physical, memory_order_release);
        return;
    }
}

void ga_vulkan_device_read(struct ga_root *root, struct ga_vulkan_instance *instance,
                           ga_vk_physical physical, struct ga_vulkan_part *part) {
    if (!recall(instance, physical, part)) {
        ga_vulkan_identity_read(instance, physical, part);
        remember(instance, physical, part);
    }
    if (part->processor)
        ga_driver_device(root, part->driver, part->identity);
}

int ga_vulkan_device_number(struct ga_root *root, const struct ga_vulkan_part *part) {
    if (!part->known)
        return -1;
    int number = ga_device_find(root, part->identity);
    if (GA_LIKELY(number >= 0))
        return number;
    number = ga_device_number(root, part->identity);
    if (number >= 0)
        ga_device_declare(root, (uint32_t)number, part->total);
    return number;
}

// Vulkan comes to devices of every vendor, and to the processor. Of some no daemon ever hears:
// these are the driver's alone, also where the loss of a daemon is closed.
bool ga_vulkan_device_lacks(struct ga_root *root, const struct ga_vulkan_part *part, int number) {
    return number >= 0 && !part->must && ga_session_lacks(root, (uint32_t)number);
}
