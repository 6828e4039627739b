// SPDX-License-Identifier: Apache-2.0
// The instances and logical devices that there are, and where their chains of layers go on behind
// this one. What a function is called with is known by its dispatch key: the first word of every
// dispatchable handle, which an instance and its physical devices share.
//
// The records are facts about the process: a forked child finds its parent's, and whatever it calls
// goes on to the driver. They are read and changed without a lock, which a child might find taken.
#ifndef GA_VULKAN_CHAIN_H
#define GA_VULKAN_CHAIN_H

#include "core/slots.h"
#include "vulkan/vulkan.h"

// The first member of each record. A page, which is used again.
struct ga_vulkan_link {
    struct ga_vulkan_link *next; // of its list, and stays so
    _Atomic uintptr_t key;       // 0: free; 1: somebody's who has just made or unmade it
};

// The next layer's functions, by the scope of their rows; NULL where it has none. They are asked
// for while the chain is made: once it is there, the loader at its end names the first layer's.
#define GA_OF_INSTANCE_global(symbol)
#define GA_OF_INSTANCE_instance(symbol) GA_FN_##symbol *symbol;
#define GA_OF_INSTANCE_device(symbol)
#define GA_OF_DEVICE_global(symbol)
#define GA_OF_DEVICE_instance(symbol)
#define GA_OF_DEVICE_device(symbol) GA_FN_##symbol *symbol;
struct ga_vulkan_of_instance {
#define GA_LAYER(symbol, scope, ...) GA_OF_INSTANCE_##scope(symbol)
#define GA_ASKS(symbol, ...) GA_FN_##symbol *symbol;
#include "vulkan/layer.def"
#undef GA_LAYER
#undef GA_ASKS
};
struct ga_vulkan_of_device {
#define GA_LAYER(symbol, scope, ...) GA_OF_DEVICE_##scope(symbol)
#define GA_ASKS(symbol, ...)
#include "vulkan/layer.def"
#undef GA_LAYER
#undef GA_ASKS
};

// A physical device, for itself or as one of those that a logical one is of.
struct ga_vulkan_part {
    uint8_t identity[GA_UUID_SIZE];
    const char *driver; // of the processor's: what the configuration calls it, or NULL
    uint64_t total;     // its memory, where a logical device is of it; 0: not known
    bool known;         // or the identity is not
    bool processor;     // whose memory all heaps are
    bool must;          // it is arbitrated, or not to be had
};

// What has been found out of one, by its handle.
struct ga_vulkan_known {
    _Atomic uintptr_t physical; // 0: there is none yet
    struct ga_vulkan_part part;
};
#define GA_VULKAN_KNOWN 32
#define GA_VULKAN_FILLING 1 // no handle's value

struct ga_vulkan_instance {
    struct ga_vulkan_link link;
    ga_vk_instance handle;
    ga_vk_get_instance *get;
    struct ga_vulkan_of_instance next;
    struct ga_vulkan_known known[GA_VULKAN_KNOWN]; // from the first on
};

struct ga_vulkan_device {
    struct ga_vulkan_link link;
    ga_vk_device handle;
    ga_vk_get_device *get;
    struct ga_vulkan_of_device next;
    uint64_t generation; // of the root that its slots were taken in; 0: none were
    struct ga_slots slots;
    uint32_t parts;
    struct ga_vulkan_part part[GA_VK_GROUP];
    uint64_t salt; // of the keys of its memory (memory.c)
    uint32_t types;
    uint8_t heap_of[GA_VK_MEMORY_TYPES];
    uint32_t heap_flags[GA_VK_HEAPS];
};

// A new one, zeroed; NULL: there is no memory.
struct ga_vulkan_instance *ga_vulkan_chain_add_instance(void);
struct ga_vulkan_device *ga_vulkan_chain_add_device(void);
// It is what a handle is of, from now on. Its get is there; the rest of the chain is filled in.
void ga_vulkan_chain_show_instance(struct ga_vulkan_instance *instance, ga_vk_instance handle);
void ga_vulkan_chain_show_device(struct ga_vulkan_device *device, ga_vk_device handle);
// By an instance's, a physical device's or a logical device's handle; NULL: none of these.
struct ga_vulkan_instance *ga_vulkan_chain_instance(const void *handle);
struct ga_vulkan_device *ga_vulkan_chain_device(const void *handle);
// Nobody finds it any more; and it is free to be used again.
void ga_vulkan_chain_hide(struct ga_vulkan_link *link);
void ga_vulkan_chain_drop(struct ga_vulkan_link *link);

// What extends a structure and is of this type, or NULL.
const void *ga_vulkan_chain_find(const struct ga_vk_any *next, int32_t type);
// Where the loader says how the chain goes on, or NULL.
struct ga_vk_loader_info *ga_vulkan_chain_loader(const struct ga_vk_any *next, int32_t type);

#endif
