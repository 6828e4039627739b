// SPDX-License-Identifier: Apache-2.0
//
// Shared by the files on modules and libraries. An image is a text:
//
//     simcuda module 1
//     code 3M                 bytes of code
//     global NAME 512M        a variable in device memory
//     kernel NAME 2K          an empty kernel, with this much local memory for each thread
//
// All lines except the first may be missing. Sizes are as in SIMCUDA_* variables.
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
    uint64_t local; // bytes for each thread
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
    bool loaded;       // its memory is taken: at the load, or when a part of it is first looked up
    uintptr_t library; // library that it is of; 0: none
    struct image image;
    uintptr_t function[MODULE_NAMES]; // handles, 0: not looked up yet
    CUdeviceptr global[MODULE_NAMES];
    struct module *next;
};

// Reads an image. Returns 1 or 200 for an invalid image, 801 for an image for a real driver.
CUresult image_read(const void *data, struct image *out);
CUresult image_file(const char *path, struct image *out);

// Loads an image into a context. No lock is held.
CUresult module_load(struct context *ctx, const struct image *image, uintptr_t library,
                     uintptr_t *out);
// Takes the module's memory, if it does not have it yet. drv.lock is held.
CUresult module_fill(struct module *m);
CUresult module_function(uintptr_t module, const char *name, uintptr_t *out);
CUresult module_global(uintptr_t module, const char *name, CUdeviceptr *at, size_t *bytes);
void module_drop(struct module *m);                         // drv.lock held
void module_drop_library(uintptr_t library);                // the same
struct module *module_of(uintptr_t library, CUcontext ctx); // the same

#endif
