// SPDX-License-Identifier: Apache-2.0
// What the files of mixed share: an object of any of the three interfaces, with memory of its own.
#ifndef MIXED_H
#define MIXED_H

#include <stddef.h>
#include <stdint.h>

#define INTERFACES 3

struct object;

struct interface {
    const char *name;
    // Makes an object with so many bytes, or none, and 0; or the interface's own status, and there
    // is nothing of it.
    int (*make)(struct object *o, size_t bytes);
    int (*end)(struct object *o);
};

struct object {
    const struct interface *of;
    void *handle;    // of a context, or of a logical device
    uint64_t memory; // 0: none
};

// CUDA, OpenCL, Vulkan; each is opened when it is first used.
extern const struct interface interfaces[INTERFACES];

#endif
