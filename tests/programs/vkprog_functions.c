// SPDX-License-Identifier: Apache-2.0
// Finds Vulkan's functions, and has the few OpenCL calls that the program makes.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "vkprog.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *looked_up(void **library, const char *file, const char *name) {
    if (!*library)
        *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *found = *library ? dlsym(*library, name) : NULL;
    if (!found) {
        printf("no %s in %s\n", name, file);
        exit(1);
    }
    return found;
}

#ifndef HOW_LINK
static void *exported(const char *name) {
    static void *library;
    return looked_up(&library, "libvulkan.so.1", name);
}
#endif

#if defined HOW_INSTANCE || defined HOW_DEVICE
void *vk_function(VkInstance instance, VkDevice device, const char *name) {
    PFN_vkGetInstanceProcAddr of_instance =
        (PFN_vkGetInstanceProcAddr)exported("vkGetInstanceProcAddr");
    PFN_vkVoidFunction found = NULL;
#ifdef HOW_DEVICE
    if (device) {
        PFN_vkGetDeviceProcAddr of_device =
            (PFN_vkGetDeviceProcAddr)of_instance(instance, "vkGetDeviceProcAddr");
        found = of_device(device, name);
    }
#else
    (void)device;
#endif
    if (!found)
        found = of_instance(instance, name);
    return (void *)found;
}
#elif defined HOW_DLSYM
void *vk_function(VkInstance instance, VkDevice device, const char *name) {
    (void)instance, (void)device;
    return exported(name);
}
#endif

void *vk_extension(const struct device *d, const char *name) {
#ifdef HOW_INSTANCE
    return vk_function(d->of->handle, d->handle, name);
#else
    return (void *)VK_AT(d, vkGetDeviceProcAddr)(d->handle, name);
#endif
}

// OpenCL

struct cl_object {
    void *handle;
};

static void *opencl(const char *name) {
    static void *library;
    return looked_up(&library, "libOpenCL.so.1", name);
}

#define CL(name) ((__typeof__(&name))opencl(#name))

void do_context(void) {
    struct cl_object *context = script_object(1, sizeof *context, true);
    cl_platform_id platform = NULL;
    cl_device_id device = NULL;
    cl_int status = CL(clGetPlatformIDs)(1, &platform, NULL);
    if (status == CL_SUCCESS)
        status = CL(clGetDeviceIDs)(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    if (status == CL_SUCCESS)
        context->handle = CL(clCreateContext)(NULL, 1, &device, NULL, NULL, &status);
    script_answer(status);
}

void do_buffer(void) {
    struct cl_object *buffer = script_object(1, sizeof *buffer, true);
    const struct cl_object *context = script_object(2, sizeof *context, false);
    cl_int status = CL_SUCCESS;
    buffer->handle =
        CL(clCreateBuffer)(context->handle, CL_MEM_READ_WRITE, script_number(3), NULL, &status);
    script_answer(status);
}

void do_release(void) {
    const struct cl_object *buffer = script_object(1, sizeof *buffer, false);
    script_answer(CL(clReleaseMemObject)(buffer->handle));
}
