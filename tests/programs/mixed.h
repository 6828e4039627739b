// SPDX-License-Identifier: Apache-2.0
// Shared by the files of mixed: an object of any of the three interfaces, with a block of memory.
#ifndef MIXED_H
#define MIXED_H

#include <stddef.h>
#include <stdint.h>

#define INTERFACES 3

struct object;

struct interface {
    const char *name;
    // Makes an object with a block of bytes (0: none). Returns 0, or the interface's error; then
    // there is no object.
    int (*make)(struct object *o, size_t bytes);
    int (*end)(struct object *o);
};

struct object {
    const struct interface *of;
    void *handle;    // handle of a context or a logical device
    uint64_t memory; // 0: none
};

// CUDA, OpenCL, Vulkan. An interface is opened when it is first used.
extern const struct interface interfaces[INTERFACES];

#endif
