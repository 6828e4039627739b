// SPDX-License-Identifier: Apache-2.0
// Reads the identity of physical devices, and stores it in the instance's record (device.h).
#include "vulkan/device.h"

#include "core/device.h"
#include "core/driver.h"
#include "core/session.h"

// Identity of a physical device

// Returns the name that the configuration has for the driver of a CPU device; NULL: none.
static const char *cpu_driver_name(const struct ga_vk_properties *properties) {
    return ga_os_begins(properties->name, "llvmpipe") ? "llvmpipe" : NULL;
}

// Gets a structure that extends a device's properties. False: the driver is of Vulkan 1.0 without
// the extension for that.
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

// Reads the unique number that the kernel has for an AMD device: sixteen digits as text. The daemon
// identifies AMD devices by it, because Vulkan drivers make UUIDs of their own.
static bool read_unique_id(const struct ga_vulkan_instance *instance, ga_vk_physical physical,
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

static void read_facts(const struct ga_vulkan_instance *instance, ga_vk_physical physical,
                       struct ga_vulkan_facts *facts) {
    struct ga_vk_properties properties = {.type = 0};
    GA_FN_vkGetPhysicalDeviceProperties *get = instance->next.vkGetPhysicalDeviceProperties;
    *facts = (struct ga_vulkan_facts){.has_identity = false};
    if (!get)
        return;
    get(physical, &properties);
    facts->is_cpu = properties.type == GA_VK_TYPE_CPU;
    facts->must_be_arbitrated = properties.vendor == GA_VK_VENDOR_NVIDIA;
    if (facts->is_cpu)
        facts->driver = cpu_driver_name(&properties);
    facts->has_identity =
        facts->is_cpu ||
        (properties.vendor == GA_VK_VENDOR_AMD ? read_unique_id(instance, physical, facts->identity)
                                               : read_uuid(instance, physical, facts->identity));
}

// Stored facts

// Finds the stored facts about a physical device. They are valid until the instance ends. False:
// they are not stored.
static bool recall(const struct ga_vulkan_instance *instance, ga_vk_physical physical,
                   struct ga_vulkan_facts *facts) {
    for (size_t i = 0; i < GA_VULKAN_PHYSICAL_RECORDS; i++) {
        const struct ga_vulkan_physical_record *known = &instance->known[i];
        if (atomic_load_explicit(&known->physical, memory_order_acquire) == (uintptr_t)physical) {
            *facts = known->facts;
            return true;
        }
    }
    return false;
}

// Stores the facts about a physical device. If all records are in use, the driver is asked again
// next time.
static void remember(struct ga_vulkan_instance *instance, ga_vk_physical physical,
                     const struct ga_vulkan_facts *facts) {
    for (size_t i = 0; i < GA_VULKAN_PHYSICAL_RECORDS; i++) {
        struct ga_vulkan_physical_record *known = &instance->known[i];
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&known->physical, &none, GA_VULKAN_FILLING))
            continue;
        known->facts = *facts;
        atomic_store_explicit(&known->physical, (uintptr_t)physical, memory_order_release);
        return;
    }
}

void ga_vulkan_device_read(struct ga_root *root, struct ga_vulkan_instance *instance,
                           ga_vk_physical physical, struct ga_vulkan_facts *facts) {
    if (!recall(instance, physical, facts)) {
        read_facts(instance, physical, facts);
        remember(instance, physical, facts);
    }
    if (facts->is_cpu)
        ga_driver_device(root, facts->driver, facts->identity);
}

int ga_vulkan_device_number(struct ga_root *root, const struct ga_vulkan_facts *facts) {
    if (!facts->has_identity)
        return -1;
    int number = ga_device_find(root, facts->identity);
    if (GA_LIKELY(number >= 0))
        return number;
    number = ga_device_number(root, facts->identity);
    if (number >= 0)
        ga_device_declare(root, (uint32_t)number, facts->total);
    return number;
}

// Vulkan reaches devices of every vendor, and the CPU. Some of them no daemon can see: these are
// the driver's alone, even if on-loss is "closed".
bool ga_vulkan_device_is_exempt(struct ga_root *root, const struct ga_vulkan_facts *facts,
                                int number) {
    return number >= 0 && !facts->must_be_arbitrated && ga_session_lacks(root, (uint32_t)number);
}
