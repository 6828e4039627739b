// SPDX-License-Identifier: Apache-2.0
#include "vulkan/device.h"

#include "core/device.h"
#include "core/driver.h"
#include "core/session.h"

// What a physical device is, by what its driver says of it

// What the configuration calls the driver of a device that computes on the processor; NULL: it has
// no word for it.
static const char *driver_of(const struct ga_vk_properties *properties) {
    return ga_os_begins(properties->name, "llvmpipe") ? "llvmpipe" : NULL;
}

// What extends a device's properties. False: the driver is of Vulkan 1.0, without the extension
// that has this.
static bool ask(const struct ga_vulkan_instance *instance, ga_vk_physical physical, void *more) {
    GA_FN_vkGetPhysicalDeviceProperties2 *get =
        instance->next.vkGetPhysicalDeviceProperties2
            ? instance->next.vkGetPhysicalDeviceProperties2
            : instance->next.vkGetPhysicalDeviceProperties2KHR;
    struct ga_vk_properties_2 properties = {.type = GA_VK_PROPERTIES_2, .next = more};
    if (get)
        get(physical, &properties);
    return get;
}

static bool read_uuid(const struct ga_vulkan_instance *instance, ga_vk_physical physical,
                      uint8_t identity[GA_UUID_SIZE]) {
    static const uint8_t none[GA_UUID_SIZE];
    struct ga_vk_id id = {.type = GA_VK_ID_PROPERTIES};
    bool asked = ask(instance, physical, &id);
    ga_os_copy(identity, id.device, GA_UUID_SIZE);
    return asked && !ga_device_same(identity, none);
}

static bool has(const struct ga_vulkan_instance *instance, ga_vk_physical physical,
                const char *name) {
    GA_FN_vkEnumerateDeviceExtensionProperties *list =
        instance->next.vkEnumerateDeviceExtensionProperties;
    uint32_t count = 0;
    bool found = false;
    if (!list || list(physical, NULL, &count, NULL) != GA_VK_SUCCESS || count == 0)
        return false;
    size_t size = count * sizeof(struct ga_vk_extension);
    struct ga_vk_extension *all = ga_os_map(size);
    if (!all)
        return false;
    if (list(physical, NULL, &count, all) == GA_VK_SUCCESS)
        for (uint32_t i = 0; i < count && !found; i++)
            found = ga_os_equal(all[i].name, name);
    ga_os_unmap(all, size);
    return found;
}

static bool read_file(const char *path, uint8_t identity[GA_UUID_SIZE]) {
    int file = ga_os_open_read(path);
    if (file < 0)
        return false;
    bool whole = ga_os_read(file, identity, GA_UUID_SIZE) == GA_UUID_SIZE;
    ga_os_close(file);
    return whole;
}

// The daemon knows AMD's devices by the number that the kernel has of them, sixteen digits as text;
// the UUIDs of Vulkan's drivers are of their own making.
static bool read_number(const struct ga_vulkan_instance *instance, ga_vk_physical physical,
                        uint8_t identity[GA_UUID_SIZE]) {
    char path[] = "/sys/bus/pci/devices/0000:00:00.0/unique_id";
    char *address = path + sizeof "/sys/bus/pci/devices/" - 1;
    struct ga_vk_pci pci = {.type = GA_VK_PCI_PROPERTIES};
    if (!has(instance, physical, "VK_EXT_pci_bus_info") || !ask(instance, physical, &pci))
        return false;
    ga_os_hex(address, pci.domain, 4);
    ga_os_hex(address + 5, pci.bus, 2);
    ga_os_hex(address + 8, pci.device, 2);
    ga_os_hex(address + 11, pci.function, 1);
    return read_file(path, identity);
}

static void read_part(const struct ga_vulkan_instance *instance, ga_vk_physical physical,
                      struct ga_vulkan_part *part) {
    struct ga_vk_properties properties = {.type = 0};
    GA_FN_vkGetPhysicalDeviceProperties *get = instance->next.vkGetPhysicalDeviceProperties;
    *part = (struct ga_vulkan_part){.known = false};
    if (!get)
        return;
    get(physical, &properties);
    part->processor = properties.type == GA_VK_TYPE_CPU;
    part->must = properties.vendor == GA_VK_VENDOR_NVIDIA;
    if (part->processor)
        part->driver = driver_of(&properties);
    part->known = part->processor || (properties.vendor == GA_VK_VENDOR_AMD
                                          ? read_number(instance, physical, part->identity)
                                          : read_uuid(instance, physical, part->identity));
}

// What is known of them

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
        read_part(instance, physical, part);
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
