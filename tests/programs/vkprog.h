// SPDX-License-Identifier: Apache-2.0
// What the files of vkprog share: the ways to Vulkan's functions, and the objects by name.
//
// HOW_LINK        linked with the loader
// HOW_DLSYM       the loader is opened, and each function that it exports looked up
// HOW_INSTANCE    of the loader only vkGetInstanceProcAddr is looked up, and it is asked for each
// HOW_DEVICE      the same, and what belongs to a device is asked of vkGetDeviceProcAddr, which
//                 leads past the loader: as wgpu and many engines do it
#ifndef VKPROG_H
#define VKPROG_H

#include <vulkan/vulkan.h>

#include "told.h"

struct instance {
    VkInstance handle;
    VkPhysicalDevice card; // the first
};

struct device {
    VkDevice handle;
    struct instance *of;
};

struct memory {
    VkDeviceMemory handle;
    struct device *of;
    VkDeviceSize bytes;
    VkBuffer buffer; // what it is dedicated to, or neither
    VkImage image;
    void *host; // the program's own memory that it is made of, or NULL
};

// The functions by name, by the way that was compiled in. An extension's are no export: by each
// way they are asked of vkGetDeviceProcAddr (HOW_INSTANCE: vkGetInstanceProcAddr).
void *vk_function(VkInstance instance, VkDevice device, const char *name);
void *vk_extension(const struct device *d, const char *name);

#ifdef HOW_LINK
#define VK(name) name
#define VK_OF(object, name) name
#define VK_AT(device, name) name
#else
#define VK(name) ((PFN_##name)vk_function(NULL, NULL, #name))
#define VK_OF(object, name) ((PFN_##name)vk_function((object)->handle, NULL, #name))
#define VK_AT(device, name) ((PFN_##name)vk_function((device)->of->handle, (device)->handle, #name))
#endif

static inline struct instance *instance_named(int word) {
    return told_named(word, sizeof(struct instance), false);
}

static inline struct device *device_named(int word) {
    return told_named(word, sizeof(struct device), false);
}

static inline struct memory *memory_named(int word) {
    return told_named(word, sizeof(struct memory), false);
}

// The commands of the other files.
void do_alloc(void);
void do_dedicated(void);
void do_image(void);
void do_import(void);
void do_host(void);
void do_free(void);
void do_nothing(void);
void do_touch(void);
void do_storm(void);
void do_dispatch(void);
void do_context(void);
void do_buffer(void);
void do_release(void);

#endif
