// SPDX-License-Identifier: Apache-2.0
// Shared by the files of vkprog: the ways to find Vulkan's functions, and the objects that commands
// name. The way is compiled in:
//
// HOW_LINK        linked with the loader
// HOW_DLSYM       dlopen of the loader, and dlsym of each exported function
// HOW_INSTANCE    dlsym of vkGetInstanceProcAddr alone, and all others from that function
// HOW_DEVICE      as HOW_INSTANCE, but functions of a device from vkGetDeviceProcAddr, which
//                 bypasses the loader, as wgpu and many engines do
#ifndef VKPROG_H
#define VKPROG_H

#include <vulkan/vulkan.h>

#include "script.h"

struct instance {
    VkInstance handle;
    VkPhysicalDevice card; // the first physical device
};

struct device {
    VkDevice handle;
    struct instance *of;
};

struct memory {
    VkDeviceMemory handle;
    struct device *of;
    VkDeviceSize bytes;
    VkBuffer buffer; // the buffer or image that the memory is dedicated to, or neither
    VkImage image;
    void *host; // the program's own memory that was imported, or NULL
};

// vk_function returns a function by name, in the way that the HOW_… macro selects. The loader does
// not export functions of extensions: vk_extension gets them from vkGetDeviceProcAddr, or with
// HOW_INSTANCE from vkGetInstanceProcAddr.
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
    return script_object(word, sizeof(struct instance), false);
}

static inline struct device *device_named(int word) {
    return script_object(word, sizeof(struct device), false);
}

static inline struct memory *memory_named(int word) {
    return script_object(word, sizeof(struct memory), false);
}

// Commands that the other files define.
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
