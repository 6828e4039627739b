// SPDX-License-Identifier: Apache-2.0
// Vulkan: libgpuarb.so is a layer there, and its loader is asked for an instance with no more than
// what programs turn on without knowing. Whether that came through the layer, the layer itself
// says: it has functions of the next one for an instance that it knows, and for no other. That
// holds wherever in the chain it is, and needs no logical device, which would take a slot.
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "probe/probe.h"

static const char layer_name[] = "VK_LAYER_GPUARB_arbiter";

typedef void (*function)(void);
typedef function get_function(void *instance, const char *name);

// VkInstanceCreateInfo, VkLayerProperties, VkNegotiateLayerInterface
struct instance_info {
    int type;
    const void *next;
    uint32_t flags;
    const void *application;
    uint32_t layers;
    const char *const *layer;
    uint32_t extensions;
    const char *const *extension;
};
struct layer {
    char name[256];
    uint32_t api_version, version;
    char description[256];
};
struct negotiation {
    int type;
    void *next;
    uint32_t version;
    get_function *get_instance, *get_device, *get_physical;
};
typedef int create_instance(const struct instance_info *info, const void *allocator,
                            void **instance);
typedef int enumerate_physical(void *instance, uint32_t *count, void **devices);
typedef int enumerate_layers(uint32_t *count, struct layer *layers);
typedef int negotiate(struct negotiation *negotiation);

// Whether the layer of this library has the instance.
static bool passed(const struct ga_probe *p, void *instance) {
    negotiate *ask = (negotiate *)dlsym(p->handle, "vkNegotiateLoaderLayerInterfaceVersion");
    struct negotiation n = {.type = 1, .version = 2};
    return ask && ask(&n) == 0 && n.get_instance &&
           n.get_instance(instance, "vkEnumeratePhysicalDevices");
}

// Whether the loader has found the layer's manifest.
static bool listed(const struct ga_probe *p) {
    enumerate_layers *layers =
        (enumerate_layers *)dlsym(p->driver, "vkEnumerateInstanceLayerProperties");
    static struct layer all[64];
    uint32_t count = sizeof all / sizeof *all;
    if (!layers || layers(&count, all) < 0)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(all[i].name, layer_name) == 0)
            return true;
    return false;
}

void ga_probe_vulkan(struct ga_probe *p) {
    get_function *get = (get_function *)dlsym(p->driver, "vkGetInstanceProcAddr");
    create_instance *create = get ? (create_instance *)get(NULL, "vkCreateInstance") : NULL;
    void *instance = NULL;
    int result = create ? create(&(struct instance_info){.type = 1}, NULL, &instance) : -1;
    if (result != 0) { // the loader finds no driver, or it is none
        (void)snprintf(p->note, sizeof p->note, "vkCreateInstance fails with %d", result);
        ga_probe_answer(p, "broken", create ? p->note : "it has none of the interface's functions");
    }
    enumerate_physical *physical =
        (enumerate_physical *)get(instance, "vkEnumeratePhysicalDevices");
    if (physical)
        (void)physical(instance, &p->devices, NULL);
    if (!passed(p, instance))
        ga_probe_answer(p, "not caught",
                        listed(p) ? "the layer is known, and not turned on"
                                  : "the layer is not known");
}
