// SPDX-License-Identifier: Apache-2.0
// vkprog's commands for memory.
#include "vkprog.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Returns the first memory type of a mask whose heap is local to the device.
static uint32_t local_type(const struct device *d, uint32_t mask) {
    VkPhysicalDeviceMemoryProperties p;
    VK_OF(d->of, vkGetPhysicalDeviceMemoryProperties)(d->of->card, &p);
    for (uint32_t i = 0; i < p.memoryTypeCount; i++)
        if (mask & 1u << i &&
            p.memoryHeaps[p.memoryTypes[i].heapIndex].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
            return i;
    return 0;
}

static VkResult allocate(struct memory *m, struct device *d, VkDeviceSize bytes, uint32_t types,
                         const void *next) {
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .pNext = next,
                                 .allocationSize = bytes,
                                 .memoryTypeIndex = local_type(d, types)};
    m->of = d;
    m->bytes = bytes;
    return VK_AT(d, vkAllocateMemory)(d->handle, &info, NULL, &m->handle);
}

void do_alloc(void) {
    struct memory *m = script_object(1, sizeof *m, true);
    VkExportMemoryAllocateInfo exported = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
                                           .handleTypes =
                                               VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    script_answer(allocate(m, device_named(2), script_number(3), ~0u,
                           script_is("exportable") ? &exported : NULL));
}

void do_dedicated(void) {
    struct memory *m = script_object(1, sizeof *m, true);
    struct device *d = device_named(2);
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .size = script_number(3),
                               .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
    VkMemoryDedicatedAllocateInfo dedicated = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO};
    VkMemoryRequirements needs = {0};
    VkResult result = VK_AT(d, vkCreateBuffer)(d->handle, &info, NULL, &m->buffer);
    if (result == VK_SUCCESS) {
        VK_AT(d, vkGetBufferMemoryRequirements)(d->handle, m->buffer, &needs);
        dedicated.buffer = m->buffer;
        result = allocate(m, d, needs.size, needs.memoryTypeBits, &dedicated);
    }
    if (result == VK_SUCCESS)
        result = VK_AT(d, vkBindBufferMemory)(d->handle, m->buffer, m->handle, 0);
    script_value(result, "%" PRIu64, needs.size);
}

void do_image(void) {
    struct memory *m = script_object(1, sizeof *m, true);
    struct device *d = device_named(2);
    VkImageCreateInfo info = {.sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
                              .imageType = VK_IMAGE_TYPE_2D,
                              .format = VK_FORMAT_R8G8B8A8_UNORM,
                              .extent = {(uint32_t)script_number(3), (uint32_t)script_number(4), 1},
                              .mipLevels = 1,
                              .arrayLayers = 1,
                              .samples = VK_SAMPLE_COUNT_1_BIT,
                              .usage = VK_IMAGE_USAGE_TRANSFER_DST_BIT};
    VkMemoryDedicatedAllocateInfo dedicated = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO};
    VkMemoryRequirements needs = {0};
    VkResult result = VK_AT(d, vkCreateImage)(d->handle, &info, NULL, &m->image);
    if (result == VK_SUCCESS) {
        VK_AT(d, vkGetImageMemoryRequirements)(d->handle, m->image, &needs);
        dedicated.image = m->image;
        result = allocate(m, d, needs.size, needs.memoryTypeBits, &dedicated);
    }
    if (result == VK_SUCCESS)
        result = VK_AT(d, vkBindImageMemory)(d->handle, m->image, m->handle, 0);
    script_value(result, "%" PRIu64, needs.size);
}

void do_import(void) {
    struct memory *m = script_object(1, sizeof *m, true);
    struct device *d = device_named(2);
    const struct memory *exporter = memory_named(3);
    PFN_vkGetMemoryFdKHR get = (PFN_vkGetMemoryFdKHR)vk_extension(exporter->of, "vkGetMemoryFdKHR");
    VkMemoryGetFdInfoKHR what = {.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR,
                                 .memory = exporter->handle,
                                 .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    VkImportMemoryFdInfoKHR imported = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR,
                                        .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
                                        .fd = -1};
    VkResult result =
        get ? get(exporter->of->handle, &what, &imported.fd) : VK_ERROR_EXTENSION_NOT_PRESENT;
    if (result == VK_SUCCESS) {
        result = allocate(m, d, exporter->bytes, ~0u, &imported);
        if (result != VK_SUCCESS)
            close(imported.fd); // after a successful import the descriptor is the driver's
    }
    script_answer(result);
}

void do_host(void) {
    struct memory *m = script_object(1, sizeof *m, true);
    size_t bytes = (script_number(3) + 0xffff) & ~(size_t)0xffff;
    m->host = aligned_alloc(0x10000, bytes);
    VkImportMemoryHostPointerInfoEXT imported = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
        .pHostPointer = m->host};
    script_answer(allocate(m, device_named(2), bytes, ~0u, &imported));
}

void do_free(void) {
    struct memory *m = memory_named(1);
    const struct device *d = m->of;
    if (m->buffer)
        VK_AT(d, vkDestroyBuffer)(d->handle, m->buffer, NULL);
    if (m->image)
        VK_AT(d, vkDestroyImage)(d->handle, m->image, NULL);
    VK_AT(d, vkFreeMemory)(d->handle, m->handle, NULL);
    free(m->host);
    memset(m, 0, sizeof *m);
    script_answer(VK_SUCCESS);
}

void do_nothing(void) {
    const struct device *d = device_named(1);
    VK_AT(d, vkFreeMemory)(d->handle, VK_NULL_HANDLE, NULL);
    script_answer(VK_SUCCESS);
}

void do_touch(void) {
    const struct memory *m = memory_named(1);
    void *at = NULL;
    VkResult result = VK_AT(m->of, vkMapMemory)(m->of->handle, m->handle, 0, VK_WHOLE_SIZE, 0, &at);
    if (result == VK_SUCCESS) {
        memset(at, 0x5a, m->bytes);
        VK_AT(m->of, vkUnmapMemory)(m->of->handle, m->handle);
    }
    script_answer(result);
}

// Several threads

static uint64_t times;

static void *storm(void *arg) {
    struct device *d = arg;
    struct memory kept[8] = {0};
    void *failed = NULL;
    for (uint64_t i = 0; i < times && !failed; i++) {
        struct memory *m = &kept[i % 8];
        if (m->handle)
            VK_AT(d, vkFreeMemory)(d->handle, m->handle, NULL);
        m->handle = NULL;
        if (allocate(m, d, 1024 * (1 + i * 7 % 64), ~0u, NULL) != VK_SUCCESS)
            failed = arg;
    }
    for (size_t i = 0; i < 8; i++)
        if (kept[i].handle)
            VK_AT(d, vkFreeMemory)(d->handle, kept[i].handle, NULL);
    return failed;
}

void do_storm(void) {
    pthread_t threads[64];
    uint64_t n = script_number(2);
    VkResult result = VK_SUCCESS;
    times = script_number(3);
    if (n > 64)
        script_misunderstood();
    for (uint64_t i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, storm, device_named(1)) != 0)
            script_misunderstood();
    for (uint64_t i = 0; i < n; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        if (failed)
            result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    script_answer(result);
}
