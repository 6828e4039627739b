// SPDX-License-Identifier: Apache-2.0
// The records of Vulkan instances and logical devices, and the functions of the next layer for
// each. All files of cshim/vulkan use it. A record is found by the dispatch key: the first word of
// every dispatchable handle. An instance and its physical devices have the same key.
//
// The records are facts about the process: a forked child has its parent's records, and its calls
// go on to the driver. They are read and changed without a lock, because a forked child might find
// a lock locked for ever.
#ifndef GA_VULKAN_CHAIN_H
#define GA_VULKAN_CHAIN_H

#include "core/slots.h"
#include "vulkan/vulkan.h"

// First member of each record. A record is a page, which is never unmapped but used again.
struct ga_vulkan_link {
    struct ga_vulkan_link *next; // next record of the list; never changes
    _Atomic uintptr_t key; // dispatch key; 0: the record is free; 1: it is being made or destroyed
};

// The next layer's functions, by the scope of their rows; NULL: the next layer lacks the function.
// They are looked up while the chain of layers is made. Later the loader at the end of the chain
// would return the first layer's functions.
#define GA_OF_INSTANCE_global(symbol)
#define GA_OF_INSTANCE_instance(symbol) GA_FN_##symbol *symbol;
#define GA_OF_INSTANCE_device(symbol)
#define GA_OF_DEVICE_global(symbol)
#define GA_OF_DEVICE_instance(symbol)
#define GA_OF_DEVICE_device(symbol) GA_FN_##symbol *symbol;
struct ga_vulkan_instance_functions {
#define GA_LAYER(symbol, scope, ...) GA_OF_INSTANCE_##scope(symbol)
#define GA_ASKS(symbol, ...) GA_FN_##symbol *symbol;
#include "vulkan/layer.def"
#undef GA_LAYER
#undef GA_ASKS
};
struct ga_vulkan_device_functions {
#define GA_LAYER(symbol, scope, ...) GA_OF_DEVICE_##scope(symbol)
#define GA_ASKS(symbol, ...)
#include "vulkan/layer.def"
#undef GA_LAYER
#undef GA_ASKS
};

// Facts about a physical device. A logical device has one such record for each of its physical
// devices.
struct ga_vulkan_facts {
    uint8_t identity[GA_UUID_SIZE];
    const char *driver;      // CPU device: name of its driver in the configuration, or NULL
    uint64_t total;          // bytes of its memory, if a logical device uses it; 0: not known
    bool has_identity;       // identity is valid
    bool is_cpu;             // it computes on the CPU, and all heaps are its memory
    bool must_be_arbitrated; // the program may use it only if the daemon arbitrates it
};

// The stored facts about a physical device, by its handle.
struct ga_vulkan_physical_record {
    _Atomic uintptr_t physical; // handle; 0: the record is empty
    struct ga_vulkan_facts facts;
};
#define GA_VULKAN_PHYSICAL_RECORDS 32
#define GA_VULKAN_FILLING 1 // value of physical while a thread fills the record; no handle has it

struct ga_vulkan_instance {
    struct ga_vulkan_link link;
    ga_vk_instance handle;
    ga_vk_get_instance *get;
    struct ga_vulkan_instance_functions next;
    struct ga_vulkan_physical_record
        known[GA_VULKAN_PHYSICAL_RECORDS]; // filled from the first record on
};

struct ga_vulkan_device {
    struct ga_vulkan_link link;
    ga_vk_device handle;
    ga_vk_get_device *get;
    struct ga_vulkan_device_functions next;
    uint64_t generation; // root's generation when its slots were taken; 0: it has no slots
    struct ga_slots slots;
    uint32_t physical_count;
    struct ga_vulkan_facts facts[GA_VK_GROUP];
    uint64_t salt; // added to the keys of its memory (memory.c)
    uint32_t types;
    uint8_t heap_of[GA_VK_MEMORY_TYPES];
    uint32_t heap_flags[GA_VK_HEAPS];
};

// Return a new record, filled with zeros; NULL: no memory.
struct ga_vulkan_instance *ga_vulkan_chain_add_instance(void);
struct ga_vulkan_device *ga_vulkan_chain_add_device(void);
// Enter the record under a handle. The caller has set get; the next layer's functions are looked up
// here.
void ga_vulkan_chain_register_instance(struct ga_vulkan_instance *instance, ga_vk_instance handle);
void ga_vulkan_chain_register_device(struct ga_vulkan_device *device, ga_vk_device handle);
// Return the record of a handle: of an instance or a physical device, or of a logical device. NULL:
// none.
struct ga_vulkan_instance *ga_vulkan_chain_instance(const void *handle);
struct ga_vulkan_device *ga_vulkan_chain_device(const void *handle);
// Removes a record, so that no handle finds it; the caller still uses it.
void ga_vulkan_chain_unregister(struct ga_vulkan_link *link);
// Frees a record for another use.
void ga_vulkan_chain_release(struct ga_vulkan_link *link);

// Returns the structure of a type in a list of extending structures, or NULL.
const void *ga_vulkan_chain_find(const struct ga_vk_any *next, int32_t type);
// Returns the structure in which the loader passes the next layer's functions, or NULL.
struct ga_vk_loader_info *ga_vulkan_chain_loader(const struct ga_vk_any *next, int32_t type);

#endif
