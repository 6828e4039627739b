// SPDX-License-Identifier: Apache-2.0
// Answers a program's questions about memory heaps with its budget. The wrappers of
// vkGetPhysicalDeviceMemoryProperties and its variants are here.
#include "core/budget.h"
#include "core/device.h"
#include "core/publish.h"
#include "hook/library.h"
#include "vulkan/chain.h"
#include "vulkan/device.h"
#include "vulkan/memory.h"

// Facts and budget of the device that a program asks about.
struct answer {
    struct ga_root *root;
    struct ga_vulkan_facts facts;
    struct ga_budget budget;
};

// Reads the facts and the budget. False: the driver's own answer stands.
static bool ask(struct answer *a, struct ga_vulkan_instance *instance, ga_vk_physical physical) {
    a->root = ga_library_disabled() ? NULL : ga_root_get();
    if (!a->root)
        return false;
    ga_vulkan_device_read(a->root, instance, physical, &a->facts);
    if (!a->facts.has_identity)
        return false;
    int number = ga_device_find(a->root, a->facts.identity);
    if (number >= 0)
        ga_publish_call(a->root, (uint32_t)number);
    return ga_budget_ask(a->root, a->facts.identity, UINT64_MAX, &a->budget);
}

// Limits the sizes of the device's heaps to the budget.
static void report_sizes(const struct answer *a, struct ga_vk_memory_properties *properties) {
    for (uint32_t i = 0; i < properties->heaps && i < GA_VK_HEAPS; i++)
        if (ga_vulkan_device_has_heap(&a->facts, properties->heap[i].flags))
            properties->heap[i].size = ga_os_least(properties->heap[i].size, a->budget.total);
}

// Fills VK_EXT_memory_budget's structure: for each heap the bytes that the process uses, and the
// bytes that it could use in total. The total is at least one byte, and at most the heap.
static void report_budgets(const struct answer *a, const struct ga_vk_memory_properties *properties,
                           struct ga_vk_budget *budget) {
    int number = ga_device_find(a->root, a->facts.identity);
    uint64_t held[GA_VK_HEAPS] = {0};
    if (number >= 0)
        ga_vulkan_memory_held(a->root, (uint32_t)number, held);
    for (uint32_t i = 0; i < properties->heaps && i < GA_VK_HEAPS; i++) {
        if (!ga_vulkan_device_has_heap(&a->facts, properties->heap[i].flags))
            continue;
        uint64_t most = ga_os_least(held[i] + a->budget.room, properties->heap[i].size);
        budget->usage[i] = held[i];
        budget->budget[i] = ga_os_least(budget->budget[i], most ? most : 1);
    }
}

void ga_vulkan_query_memory(ga_vk_physical physical, struct ga_vk_memory_properties *properties) {
    struct ga_vulkan_instance *instance = ga_vulkan_chain_instance(physical);
    struct answer a;
    if (!instance || !instance->next.vkGetPhysicalDeviceMemoryProperties)
        return;
    instance->next.vkGetPhysicalDeviceMemoryProperties(physical, properties);
    if (ask(&a, instance, physical))
        report_sizes(&a, properties);
}

void ga_vulkan_query_memory_2(ga_vk_physical physical,
                              struct ga_vk_memory_properties_2 *properties) {
    struct ga_vulkan_instance *instance = ga_vulkan_chain_instance(physical);
    struct answer a;
    if (!instance)
        return;
    GA_FN_vkGetPhysicalDeviceMemoryProperties2 *real =
        instance->next.vkGetPhysicalDeviceMemoryProperties2
            ? instance->next.vkGetPhysicalDeviceMemoryProperties2
            : instance->next.vkGetPhysicalDeviceMemoryProperties2KHR;
    if (!real)
        return;
    real(physical, properties);
    if (!ask(&a, instance, physical))
        return;
    report_sizes(&a, &properties->properties);
    const void *budget = ga_vulkan_chain_find(properties->next, GA_VK_BUDGET_PROPERTIES);
    if (budget)
        report_budgets(&a, &properties->properties, (struct ga_vk_budget *)(uintptr_t)budget);
}
