// SPDX-License-Identifier: Apache-2.0
#include "vulkan/identity.h"

#include "core/device.h"

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

static void write_hex(char *at, uint32_t value, int digits) {
    while (digits-- > 0)
        *at++ = "0123456789abcdef"[value >> 4 * digits & 0xf];
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
    write_hex(address, pci.domain, 4);
    write_hex(address + 5, pci.bus, 2);
    write_hex(address + 8, pci.device, 2);
    write_hex(address + 11, pci.function, 1);
    return read_file(path, identity);
}

void ga_vulkan_identity_read(const struct ga_vulkan_instance *instance, ga_vk_physical physical,
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
