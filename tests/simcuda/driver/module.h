// SPDX-License-Identifier: Apache-2.0
//
// What the files about modules and libraries share. An image is a text:
//
//     simcuda module 1
//     code 3M                 bytes of code
//     global NAME 512M        a variable in device memory
//     kernel NAME 2K          a kernel that does nothing, with so much local memory for each thread
//
// Each line but the first may be missing. Sizes are as in SIMCUDA_* variables.
#ifndef SIMCUDA_MODULE_H
#define SIMCUDA_MODULE_H

#include "driver.h"

enum { MODULE_NAMES = 16, MODULE_NAME = 32 };

struct image_global {
    char name[MODULE_NAME];
    uint64_t bytes;
};
struct image_kernel {
    char name[MODULE_NAME];
    uint64_t local; // bytes of each thread
};
struct image {
    uint64_t code;
    unsigned globals, kernels;
    struct image_global global[MODULE_NAMES];
    struct image_kernel kernel[MODULE_NAMES];
};

struct module;
struct function {
    struct module *module;
    uint64_t local;
};
struct module {
    uintptr_t handle;
    CUcontext ctx;
    int phys;
    bool loaded;       // its memory is taken: at once, or when something of it is first looked up
    uintptr_t library; // or 0: it was loaded by itself
    struct image image;
    uintptr_t function[MODULE_NAMES]; // handles, 0: not looked up yet
    CUdeviceptr global[MODULE_NAMES];
    struct module *next;
};

// Reads an image: 1, 200 for what is none, 801 for one that a real driver takes.
CUresult image_read(const void *data, struct image *out);
CUresult image_file(const char *path, struct image *out);

// Puts an image into a context. Under no lock.
CUresult module_load(struct context *ctx, const struct image *image, uintptr_t library,
                     uintptr_t *out);
// Takes its memory, if it has not yet. drv.lock held.
CUresult module_fill(struct module *m);
CUresult module_function(uintptr_t module, const char *name, uintptr_t *out);
CUresult module_global(uintptr_t module, const char *name, CUdeviceptr *at, size_t *bytes);
void module_drop(struct module *m);                         // drv.lock held
void module_drop_library(uintptr_t library);                // the same
struct module *module_of(uintptr_t library, CUcontext ctx); // the same

#endif
