// SPDX-License-Identifier: Apache-2.0
// clprog: an OpenCL program that executes commands (script.h). It prints "ready" first. A status is
// OpenCL's error code.
//
//   context NAME             clCreateContext for the first device;
//                            contexttype: clCreateContextFromType;  two: for the first and the last
//   retain NAME; drop NAME   clRetainContext, clReleaseContext
//   buffer NAME CONTEXT SIZE     clCreateBuffer;  properties: clCreateBufferWithProperties
//   hostbuffer NAME CONTEXT SIZE clCreateBuffer with CL_MEM_USE_HOST_PTR;
//                            atonce: with CL_MEM_ALLOC_HOST_PTR, which PoCL allocates at once
//   sub NAME BUFFER SIZE         clCreateSubBuffer
//   image NAME CONTEXT WIDTH HEIGHT    clCreateImage, RGBA of 8 bits;  old: clCreateImage2D
//   cube NAME CONTEXT WIDTH HEIGHT DEPTH   the same of three dimensions
//   layers NAME CONTEXT WIDTH HEIGHT COUNT, float RGBA
//   hold NAME; release NAME      clRetainMemObject, clReleaseMemObject
//   svm NAME CONTEXT SIZE        clSVMAlloc
//   svmfree NAME CONTEXT         clSVMFree
//   svmlater NAME CONTEXT        clEnqueueSVMFree behind a user event, which fire NAME sets
//   fire NAME
//   queue NAME CONTEXT first|last    clCreateCommandQueue for that device
//   fill QUEUE BUFFER [SIZE]         clEnqueueFillBuffer, with SIZE until it is done
//   copy QUEUE FROM TO               clEnqueueCopyBuffer
//   storm CONTEXT THREADS TIMES  buffers made and released by threads at once, 1 to 64 KiB
//   chain BUFFER CONTEXT SIZE    the end of a buffer makes another one
//   forked NAME                  a forked child releases it, and ends
//   total; largest; free         clGetDeviceInfo: "total ok 1073741824"
//   pid; exit STATUS
#include "clprog.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script.h"

struct thing {
    void *object;
    cl_command_queue queue;
};

static cl_platform_id platform;
static cl_device_id device, last; // the platform's first and last device

static struct thing *named(int word, bool make) {
    return script_object(word, sizeof(struct thing), make);
}

// Functions

#ifndef HOW_LINK
void *cl_function(const char *name) {
    static void *library;
    if (!library)
        library = dlopen("libOpenCL.so.1", RTLD_LAZY);
    void *found = NULL;
#ifdef HOW_EXTENSION
    void *(*ask)(cl_platform_id, const char *) = NULL;
    if (platform)
        *(void **)&ask = dlsym(library, "clGetExtensionFunctionAddressForPlatform");
    found = ask ? ask(platform, name) : NULL;
#endif
    if (!found)
        found = library ? dlsym(library, name) : NULL;
    if (!found) {
        printf("no %s\n", name);
        exit(1);
    }
    return found;
}
#endif

// Contexts

static void do_context(void) {
    cl_int status = CL_SUCCESS;
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    cl_device_id devices[2] = {script_is("contextlast") ? last : device, last};
    cl_context context;
    if (script_is("contexttype"))
        context = CL(clCreateContextFromType)(properties, CL_DEVICE_TYPE_ALL, NULL, NULL, &status);
    else
        context =
            CL(clCreateContext)(properties, script_is("two") ? 2 : 1, devices, NULL, NULL, &status);
    named(1, true)->object = context;
    if (!context != (status != CL_SUCCESS))
        status = 1; // result and status disagree
    script_answer(status);
}

static void do_same(void) {
    script_answer(named(1, false)->object == named(2, false)->object ? CL_SUCCESS : 1);
}

static void do_retain(void) {
    script_answer(CL(clRetainContext)(named(1, false)->object));
}

static void do_drop(void) {
    script_answer(CL(clReleaseContext)(named(1, false)->object));
}

// Memory

static void made(cl_mem memory, const cl_int *status) {
    named(1, true)->object = memory;
    script_answer(!memory == (*status != CL_SUCCESS) ? *status
                                                     : 1); // 1: result and status disagree
}

static void do_buffer(void) {
    cl_int status = CL_SUCCESS;
    cl_context context = named(2, false)->object;
    size_t size = script_number(3);
    cl_mem memory;
    if (script_is("properties"))
        memory =
            CL(clCreateBufferWithProperties)(context, NULL, CL_MEM_READ_WRITE, size, NULL, &status);
    else if (script_is("hostbuffer"))
        memory = CL(clCreateBuffer)(context, CL_MEM_USE_HOST_PTR, size, malloc(size), &status);
    else
        memory = CL(clCreateBuffer)(context,
                                    script_is("atonce") ? CL_MEM_ALLOC_HOST_PTR : CL_MEM_READ_WRITE,
                                    size, NULL, &status);
    made(memory, &status);
}

static void do_sub(void) {
    cl_int status = CL_SUCCESS;
    cl_buffer_region region = {0, script_number(3)};
    cl_mem memory = CL(clCreateSubBuffer)(named(2, false)->object, CL_MEM_READ_WRITE,
                                          CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    made(memory, &status);
}

static void do_image(void) {
    cl_int status = CL_SUCCESS;
    cl_context context = named(2, false)->object;
    cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    cl_image_desc image = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                           .image_width = script_number(3),
                           .image_height = script_number(4)};
    cl_mem memory;
    if (script_is("cube")) {
        image.image_type = CL_MEM_OBJECT_IMAGE3D;
        image.image_depth = script_number(5);
    } else if (script_is("layers")) {
        image.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY;
        image.image_array_size = script_number(5);
        format.image_channel_data_type = CL_FLOAT;
    }
    if (script_is("old"))
        memory = CL(clCreateImage2D)(context, CL_MEM_READ_WRITE, &format, image.image_width,
                                     image.image_height, 0, NULL, &status);
    else
        memory = CL(clCreateImage)(context, CL_MEM_READ_WRITE, &format, &image, NULL, &status);
    made(memory, &status);
}

static void do_hold(void) {
    script_answer(CL(clRetainMemObject)(named(1, false)->object));
}

static void do_release(void) {
    script_answer(CL(clReleaseMemObject)(named(1, false)->object));
}

// Shared virtual memory

static void do_svm(void) {
    void *at = CL(clSVMAlloc)(named(2, false)->object, CL_MEM_READ_WRITE, script_number(3), 0);
    named(1, true)->object = at;
    script_answer(at ? CL_SUCCESS : 1);
}

static void do_svmfree(void) {
    CL(clSVMFree)(named(2, false)->object, named(1, false)->object);
    script_answer(CL_SUCCESS);
}

static void do_svmlater(void) {
    cl_int status = CL_SUCCESS;
    cl_context context = named(2, false)->object;
    struct thing *n = named(1, false);
    n->queue = CL(clCreateCommandQueueWithProperties)(context, device, NULL, &status);
    cl_event event = status ? NULL : CL(clCreateUserEvent)(context, &status);
    if (status == CL_SUCCESS)
        status = CL(clEnqueueSVMFree)(n->queue, 1, &n->object, NULL, NULL, 1, &event, NULL);
    n->object = event;
    script_answer(status);
}

static void do_fire(void) {
    struct thing *n = named(1, false);
    cl_int status = CL(clSetUserEventStatus)(n->object, CL_COMPLETE);
    if (status == CL_SUCCESS)
        status = CL(clFinish)(n->queue);
    script_answer(status);
}

// Commands

static void do_queue(void) {
    cl_int status = CL_SUCCESS;
    named(1, true)->object = CL(clCreateCommandQueue)(
        named(2, false)->object, strcmp(script_text(3), "last") == 0 ? last : device, 0, &status);
    script_answer(status);
}

static void do_fill(void) {
    static const char pattern[16];
    size_t size = script_has(3) ? script_number(3) : sizeof pattern;
    cl_command_queue queue = named(1, false)->object;
    cl_int status = CL(clEnqueueFillBuffer)(queue, named(2, false)->object, pattern, sizeof pattern,
                                            0, size, 0, NULL, NULL);
    if (status == CL_SUCCESS && script_has(3))
        status = CL(clFinish)(queue);
    script_answer(status);
}

static void do_copy(void) {
    script_answer(CL(clEnqueueCopyBuffer)(named(1, false)->object, named(2, false)->object,
                                          named(3, false)->object, 0, 0, 16, 0, NULL, NULL));
}

// Several threads

static cl_context stormed;
static uint64_t times;

static void *storm(void *arg) {
    cl_mem kept[8] = {NULL};
    for (uint64_t i = 0; i < times; i++) {
        cl_mem *at = &kept[i % 8];
        if (*at)
            CL(clReleaseMemObject)(*at);
        cl_int status = CL_SUCCESS;
        size_t size = 1024 * (1 + (i * 7 + (uintptr_t)arg) % 64);
        *at = CL(clCreateBuffer)(stormed, CL_MEM_READ_WRITE, size, NULL, &status);
        if (!*at)
            return arg; // refused
    }
    for (size_t i = 0; i < 8; i++)
        if (kept[i])
            CL(clReleaseMemObject)(kept[i]);
    return NULL;
}

static void do_storm(void) {
    pthread_t threads[64];
    uint64_t n = script_number(2);
    cl_int status = CL_SUCCESS;
    stormed = named(1, false)->object;
    times = script_number(3);
    if (n > 64)
        script_misunderstood();
    for (uintptr_t i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, storm, (void *)(i + 1)) != 0)
            script_misunderstood();
    for (uint64_t i = 0; i < n; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        if (failed)
            status = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    }
    script_answer(status);
}

static size_t chained;

static void CL_CALLBACK make_another(cl_mem memory, void *context) {
    cl_int status = CL_SUCCESS;
    (void)memory;
    CL(clCreateBuffer)(context, CL_MEM_READ_WRITE, chained, NULL, &status);
}

static void do_chain(void) {
    chained = script_number(3);
    script_answer(CL(clSetMemObjectDestructorCallback)(named(1, false)->object, make_another,
                                                       named(2, false)->object));
}

static void do_forked(void) {
    int ended = 0;
    pid_t child = fork();
    if (child == 0) {
        CL(clReleaseMemObject)(named(1, false)->object);
        _exit(0);
    }
    waitpid(child, &ended, 0);
    script_answer(ended);
}

// Other commands

static void do_info(void) {
    cl_ulong value = 0;
    cl_int status = CL(clGetDeviceInfo)(
        device, script_is("total") ? CL_DEVICE_GLOBAL_MEM_SIZE : CL_DEVICE_MAX_MEM_ALLOC_SIZE,
        sizeof value, &value, NULL);
    script_value(status, "%" PRIu64, value);
}

static void do_free(void) {
    size_t kib[2] = {0, 0};
    char more[64];
    cl_int status =
        CL(clGetDeviceInfo)(device, CL_DEVICE_GLOBAL_FREE_MEMORY_AMD, sizeof kib, kib, NULL);
    snprintf(more, sizeof more, "%zu %zu", kib[0], kib[1]);
    script_value(status, "%s", more);
}

static void do_pid(void) {
    script_value(CL_SUCCESS, "%" PRIu64, (uint64_t)getpid());
}

static void do_exit(void) {
    exit((int)script_number(1));
}

static const struct script_verb verbs[] = {
    {"context", do_context},
    {"contexttype", do_context},
    {"contextlast", do_context},
    {"same", do_same},
    {"two", do_context},
    {"retain", do_retain},
    {"drop", do_drop},
    {"buffer", do_buffer},
    {"properties", do_buffer},
    {"hostbuffer", do_buffer},
    {"atonce", do_buffer},
    {"sub", do_sub},
    {"image", do_image},
    {"old", do_image},
    {"cube", do_image},
    {"layers", do_image},
    {"hold", do_hold},
    {"release", do_release},
    {"svm", do_svm},
    {"svmfree", do_svmfree},
    {"svmlater", do_svmlater},
    {"fire", do_fire},
    {"total", do_info},
    {"largest", do_info},
    {"storm", do_storm},
    {"chain", do_chain},
    {"forked", do_forked},
    {"free", do_free},
    {"pid", do_pid},
    {"exit", do_exit},
    {"queue", do_queue},
    {"fill", do_fill},
    {"copy", do_copy},
};

int main(int argc, char **argv) {
    cl_platform_id first = NULL;
    cl_device_id devices[8];
    cl_uint count = 0;
    cl_int status = CL(clGetPlatformIDs)(1, &first, NULL);
    if (status == CL_SUCCESS)
        status = CL(clGetDeviceIDs)(first, CL_DEVICE_TYPE_ALL, 8, devices, &count);
    if (status != CL_SUCCESS) {
        printf("init err %d\n", status);
        return 1;
    }
    platform = first;
    device = devices[0];
    last = devices[count - 1];
    printf("ready\n");
    fflush(stdout);
    script_run(argc, argv, verbs, sizeof verbs / sizeof verbs[0]);
    return 0;
}
