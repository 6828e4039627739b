// SPDX-License-Identifier: Apache-2.0
// The library as an implicit layer of Vulkan's loader. The loader finds the library by its
// manifest, or because it is preloaded. It calls vkNegotiateLoaderLayerInterfaceVersion for the two
// functions that return all others. Each GA_LAYER row of layer.def has a wrapper here. For other
// functions the program gets the next layer's own function.
#include <dlfcn.h>

#include "hook/library.h"
#include "hook/loader.h"
#include "hook/row.h"
#include "vulkan/chain.h"

ga_vk_result ga_vulkan_layers(uint32_t *count, struct ga_vk_layer *layers) {
    if (!layers) {
        *count = 1;
        return GA_VK_SUCCESS;
    }
    if (*count == 0)
        return GA_VK_INCOMPLETE;
    struct ga_vk_layer own = {.api_version = GA_VK_API(1, 3),
                              .version = 1,
                              .description = "Arbitrates device memory between programs"};
    ga_os_copy(own.name, GA_VK_LAYER_NAME, sizeof GA_VK_LAYER_NAME);
    *layers = own;
    *count = 1;
    return GA_VK_SUCCESS;
}

ga_vk_result ga_vulkan_instance_extensions(const char *layer, uint32_t *count,
                                           struct ga_vk_extension *extensions) {
    (void)extensions;
    if (!layer || !ga_os_equal(layer, GA_VK_LAYER_NAME))
        return GA_VK_LAYER_NOT_PRESENT;
    *count = 0;
    return GA_VK_SUCCESS;
}

ga_vk_result ga_vulkan_device_layers(ga_vk_physical physical, uint32_t *count,
                                     struct ga_vk_layer *layers) {
    (void)physical;
    return ga_vulkan_layers(count, layers);
}

ga_vk_result ga_vulkan_device_extensions(ga_vk_physical physical, const char *layer,
                                         uint32_t *count, struct ga_vk_extension *extensions) {
    const struct ga_vulkan_instance *instance = ga_vulkan_chain_instance(physical);
    if (layer && ga_os_equal(layer, GA_VK_LAYER_NAME)) {
        *count = 0;
        return GA_VK_SUCCESS;
    }
    if (!instance || !instance->next.vkEnumerateDeviceExtensionProperties)
        return GA_VK_INITIALIZATION_FAILED;
    return instance->next.vkEnumerateDeviceExtensionProperties(physical, layer, count, extensions);
}

#define GA_LAYER(symbol, scope, returns, parameters, arguments, function)                          \
    static returns wrap_##symbol parameters {                                                      \
        GA_ROW_KEEPS_ERRNO;                                                                        \
        return function arguments;                                                                 \
    }
#define GA_ASKS(symbol, ...)
#include "vulkan/layer.def"
#undef GA_LAYER

enum scope { global, instance, device };

// Returns the wrapper of a function and its scope; NULL: it is not wrapped.
static ga_vk_function wrapper_of(const char *name, enum scope *scope) {
#define GA_LAYER(symbol, of, ...)                                                                  \
    if (ga_os_equal(name, #symbol)) {                                                              \
        *scope = of;                                                                               \
        return (ga_vk_function)wrap_##symbol;                                                      \
    }
#include "vulkan/layer.def"
#undef GA_LAYER
#undef GA_ASKS
    return NULL;
}

// Returns a function for the program. If the next layer lacks the function, for example because it
// is of a later version, the program gets NULL.
ga_vk_function ga_vulkan_instance_function(ga_vk_instance handle, const char *name) {
    enum scope scope;
    ga_vk_function wrapper = wrapper_of(name, &scope);
    // MangoHud and Mesa's overlay look up vkCreateDevice without an instance.
    if (wrapper && (scope == global || !handle))
        return wrapper;
    const struct ga_vulkan_instance *record = ga_vulkan_chain_instance(handle);
    if (!record)
        return NULL;
    ga_vk_function next = record->get(record->handle, name);
    return next && wrapper ? wrapper : next;
}

ga_vk_function ga_vulkan_device_function(ga_vk_device handle, const char *name) {
    enum scope scope;
    ga_vk_function wrapper = wrapper_of(name, &scope);
    const struct ga_vulkan_device *record = ga_vulkan_chain_device(handle);
    if (wrapper && scope == device)
        return wrapper;
    return record ? record->get(handle, name) : NULL;
}

typedef ga_vk_result negotiate(struct ga_vk_negotiation *negotiation);
__attribute__((visibility("default"))) negotiate vkNegotiateLoaderLayerInterfaceVersion;

// Returns the negotiation function of another copy of this library that is preloaded, or NULL. The
// manifest may name a different copy (an installed copy, and one in a build folder), but only one
// copy may have a session with the daemon.
static negotiate *preloaded(void) {
    static const char file[] = "/libgpuarb.so";
    const struct ga_loader *loader = ga_loader_get();
    Dl_info info;
    void *first = loader->dlsym && loader->dladdr
                      ? loader->dlsym(RTLD_DEFAULT, "vkNegotiateLoaderLayerInterfaceVersion")
                      : NULL;
    if (!first || ga_loader_is_own(first) || !loader->dladdr(first, &info))
        return NULL;
    size_t length = ga_os_length(info.dli_fname);
    bool ours =
        length >= sizeof file - 1 && ga_os_equal(info.dli_fname + length - (sizeof file - 1), file);
    return ours ? (negotiate *)first : NULL;
}

ga_vk_result vkNegotiateLoaderLayerInterfaceVersion(struct ga_vk_negotiation *negotiation) {
    negotiate *other = preloaded();
    if (other)
        return other(negotiation);
    if (negotiation->type != GA_VK_NEGOTIATION || negotiation->version < GA_VK_LAYER_INTERFACE)
        return GA_VK_INITIALIZATION_FAILED;
    negotiation->version = GA_VK_LAYER_INTERFACE;
    negotiation->get_instance = wrap_vkGetInstanceProcAddr;
    negotiation->get_device = wrap_vkGetDeviceProcAddr;
    negotiation->get_physical = NULL;
    return GA_VK_SUCCESS;
}
