// SPDX-License-Identifier: Apache-2.0
// Probe of Vulkan, in which libgpuarb.so is a layer. It asks Vulkan's loader for an instance with
// default layers only. The layer itself shows whether the instance passed through it: it has next
// functions for instances that it knows, and for no others. This works at any place in the chain of
// layers, and needs no logical device, which would take a slot.
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "probe/probe.h"
#include "vulkan/vulkan.h"

typedef ga_vk_result enumerate_physical(ga_vk_instance instance, uint32_t *count,
                                        ga_vk_physical *devices);
typedef ga_vk_result negotiate(struct ga_vk_negotiation *negotiation);

// Reports whether the layer in libgpuarb.so knows the instance.
static bool passed(const struct ga_probe *p, ga_vk_instance instance) {
    negotiate *ask = (negotiate *)dlsym(p->handle, "vkNegotiateLoaderLayerInterfaceVersion");
    struct ga_vk_negotiation n = {.type = GA_VK_NEGOTIATION, .version = GA_VK_LAYER_INTERFACE};
    return ask && ask(&n) == 0 && n.get_instance &&
           n.get_instance(instance, "vkEnumeratePhysicalDevices");
}

// Reports whether the loader has found the layer's manifest.
static bool listed(const struct ga_probe *p) {
    GA_FN_vkEnumerateInstanceLayerProperties *layers =
        (GA_FN_vkEnumerateInstanceLayerProperties *)dlsym(p->driver,
                                                          "vkEnumerateInstanceLayerProperties");
    static struct ga_vk_layer all[64];
    uint32_t count = sizeof all / sizeof *all;
    if (!layers || layers(&count, all) < 0)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(all[i].name, GA_VK_LAYER_NAME) == 0)
            return true;
    return false;
}

void ga_probe_vulkan(struct ga_probe *p) {
    ga_vk_get_instance *get = (ga_vk_get_instance *)dlsym(p->driver, "vkGetInstanceProcAddr");
    GA_FN_vkCreateInstance *create =
        get ? (GA_FN_vkCreateInstance *)get(NULL, "vkCreateInstance") : NULL;
    ga_vk_instance instance = NULL;
    struct ga_vk_instance_info info = {.type = GA_VK_INSTANCE_INFO};
    ga_vk_result result = create ? create(&info, NULL, &instance) : -1;
    if (result != 0) { // the loader finds no driver, or this is not Vulkan's loader
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
