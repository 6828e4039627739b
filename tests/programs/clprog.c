// SPDX-License-Identifier: Apache-2.0
// clprog: an OpenCL program that does as it is told, a command a line or between semicolons, from
// its arguments, or from stdin where there are none. It says "ready" first. Each command is
// answered by one line: "buffer a ok", or "buffer a err -4" with OpenCL's status.
//
//   context NAME             clCreateContext for the first device;
//                            contexttype: clCreateContextFromType;  two: for the first and the last
//   retain NAME; drop NAME   clRetainContext, clReleaseContext
//   buffer NAME CONTEXT SIZE     clCreateBuffer;  properties: clCreateBufferWithProperties
//   hostbuffer NAME CONTEXT SIZE clCreateBuffer with CL_MEM_USE_HOST_PTR
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
//   fill QUEUE BUFFER [SIZE]; wrongfill QUEUE BUFFER    clEnqueueFillBuffer, with SIZE until it is
//                                    done; the second without a pattern
//   copy QUEUE FROM TO; map QUEUE BUFFER     clEnqueueCopyBuffer, clEnqueueMapBuffer
//   kernel NAME; endkernel NAME      clCreateKernel without a program, clReleaseKernel
//   argument KERNEL INDEX BUFFER     clSetKernelArg;  plain KERNEL INDEX: an integer
//   launch QUEUE KERNEL              clEnqueueNDRangeKernel
//   storm CONTEXT THREADS TIMES  buffers made and released by threads at once, each from 1 to 64
//   KiB forked NAME                  a forked child releases it, and ends total; largest
//   clGetDeviceInfo: "total ok 1073741824" pid; exit STATUS
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

#define WORDS 8
#define NAMES 256

struct name {
    char text[32];
    void *object;
    cl_command_queue queue;
};
static struct name names[NAMES];
static size_t n_names;

static char *word[WORDS];
static int words;
static cl_platform_id platform;
static cl_device_id device, last; // the first of them, and the last

static __attribute__((noreturn)) void misunderstood(void) {
    printf("what? %s\n", words ? word[0] : "");
    fflush(stdout);
    _exit(2);
}

static const char *text(int i) {
    if (i >= words)
        misunderstood();
    return word[i];
}

static uint64_t number(int i) {
    char *end;
    uint64_t value = strtoull(text(i), &end, 0);
    static const char units[] = "KMGT";
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (*end && !unit)
        misunderstood();
    return unit ? value << 10 * (unit - units + 1) : value;
}

static struct name *named(int i, bool make) {
    for (size_t n = 0; n < n_names; n++)
        if (strcmp(names[n].text, text(i)) == 0)
            return &names[n];
    if (!make || n_names == NAMES || strlen(text(i)) >= sizeof names[0].text)
        misunderstood();
    strcpy(names[n_names].text, text(i));
    return &names[n_names++];
}

static void answer(cl_int status, const char *more) {
    printf("%s%s%s ", word[0], words > 1 ? " " : "", words > 1 ? word[1] : "");
    if (status == CL_SUCCESS)
        printf("ok%s%s\n", *more ? " " : "", more);
    else
        printf("err %d\n", status);
    fflush(stdout);
}

static void answer_number(cl_int status, uint64_t value) {
    char more[32];
    snprintf(more, sizeof more, "%" PRIu64, value);
    answer(status, more);
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
    cl_device_id devices[2] = {device, last};
    cl_context context;
    if (strcmp(word[0], "contexttype") == 0)
        context = CL(clCreateContextFromType)(properties, CL_DEVICE_TYPE_ALL, NULL, NULL, &status);
    else
        context = CL(clCreateContext)(properties, strcmp(word[0], "two") == 0 ? 2 : 1, devices,
                                      NULL, NULL, &status);
    named(1, true)->object = context;
    if (!context != (status != CL_SUCCESS))
        status = 1; // it says two things
    answer(status, "");
}

static void do_retain(void) {
    answer(CL(clRetainContext)(named(1, false)->object), "");
}

static void do_drop(void) {
    answer(CL(clReleaseContext)(named(1, false)->object), "");
}

// Memory

static void made(cl_mem memory, const cl_int *status) {
    named(1, true)->object = memory;
    answer(!memory == (*status != CL_SUCCESS) ? *status : 1, ""); // 1: it says two things
}

static void do_buffer(void) {
    cl_int status = CL_SUCCESS;
    cl_context context = named(2, false)->object;
    size_t size = number(3);
    cl_mem memory;
    if (strcmp(word[0], "properties") == 0)
        memory =
            CL(clCreateBufferWithProperties)(context, NULL, CL_MEM_READ_WRITE, size, NULL, &status);
    else if (strcmp(word[0], "hostbuffer") == 0)
        memory = CL(clCreateBuffer)(context, CL_MEM_USE_HOST_PTR, size, malloc(size), &status);
    else
        memory = CL(clCreateBuffer)(context, CL_MEM_READ_WRITE, size, NULL, &status);
    made(memory, &status);
}

static void do_sub(void) {
    cl_int status = CL_SUCCESS;
    cl_buffer_region region = {0, number(3)};
    cl_mem memory = CL(clCreateSubBuffer)(named(2, false)->object, CL_MEM_READ_WRITE,
                                          CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    made(memory, &status);
}

static void do_image(void) {
    cl_int status = CL_SUCCESS;
    cl_context context = named(2, false)->object;
    cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    cl_image_desc image = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = number(3), .image_height = number(4)};
    cl_mem memory;
    if (strcmp(word[0], "cube") == 0) {
        image.image_type = CL_MEM_OBJECT_IMAGE3D;
        image.image_depth = number(5);
    } else if (strcmp(word[0], "layers") == 0) {
        image.image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY;
        image.image_array_size = number(5);
        format.image_channel_data_type = CL_FLOAT;
    }
    if (strcmp(word[0], "old") == 0)
        memory = CL(clCreateImage2D)(context, CL_MEM_READ_WRITE, &format, image.image_width,
                                     image.image_height, 0, NULL, &status);
    else
        memory = CL(clCreateImage)(context, CL_MEM_READ_WRITE, &format, &image, NULL, &status);
    made(memory, &status);
}

static void do_hold(void) {
    answer(CL(clRetainMemObject)(named(1, false)->object), "");
}

static void do_release(void) {
    answer(CL(clReleaseMemObject)(named(1, false)->object), "");
}

// Shared virtual memory

static void do_svm(void) {
    void *at = CL(clSVMAlloc)(named(2, false)->object, CL_MEM_READ_WRITE, number(3), 0);
    named(1, true)->object = at;
    answer(at ? CL_SUCCESS : 1, "");
}

static void do_svmfree(void) {
    CL(clSVMFree)(named(2, false)->object, named(1, false)->object);
    answer(CL_SUCCESS, "");
}

static void do_svmlater(void) {
    cl_int status = CL_SUCCESS;
    cl_context context = named(2, false)->object;
    struct name *n = named(1, false);
    n->queue = CL(clCreateCommandQueueWithProperties)(context, device, NULL, &status);
    cl_event event = status ? NULL : CL(clCreateUserEvent)(context, &status);
    if (status == CL_SUCCESS)
        status = CL(clEnqueueSVMFree)(n->queue, 1, &n->object, NULL, NULL, 1, &event, NULL);
    n->object = event;
    answer(status, "");
}

static void do_fire(void) {
    struct name *n = named(1, false);
    cl_int status = CL(clSetUserEventStatus)(n->object, CL_COMPLETE);
    if (status == CL_SUCCESS)
        status = CL(clFinish)(n->queue);
    answer(status, "");
}

// Commands

static void do_queue(void) {
    cl_int status = CL_SUCCESS;
    named(1, true)->object = CL(clCreateCommandQueue)(
        named(2, false)->object, strcmp(text(3), "last") == 0 ? last : device, 0, &status);
    answer(status, "");
}

static void do_fill(void) {
    static const char pattern[16];
    size_t length = strcmp(word[0], "fill") == 0 ? sizeof pattern : 0;
    size_t size = words > 3 ? number(3) : sizeof pattern;
    cl_command_queue queue = named(1, false)->object;
    cl_int status = CL(clEnqueueFillBuffer)(queue, named(2, false)->object, pattern, length, 0,
                                            size, 0, NULL, NULL);
    if (status == CL_SUCCESS && words > 3)
        status = CL(clFinish)(queue);
    answer(status, "");
}

static void do_copy(void) {
    answer(CL(clEnqueueCopyBuffer)(named(1, false)->object, named(2, false)->object,
                                   named(3, false)->object, 0, 0, 16, 0, NULL, NULL),
           "");
}

static void do_map(void) {
    cl_int status = CL_SUCCESS;
    void *at = CL(clEnqueueMapBuffer)(named(1, false)->object, named(2, false)->object, CL_TRUE,
                                      CL_MAP_READ, 0, 16, 0, NULL, NULL, &status);
    answer(!at == (status != CL_SUCCESS) ? status : 1, "");
}

static void do_kernel(void) {
    cl_int status = CL_SUCCESS;
    named(1, true)->object = CL(clCreateKernel)(NULL, "k", &status);
    answer(status, "");
}

static void do_endkernel(void) {
    answer(CL(clReleaseKernel)(named(1, false)->object), "");
}

static void do_argument(void) {
    cl_ulong plain = 1;
    bool object = strcmp(word[0], "argument") == 0;
    answer(CL(clSetKernelArg)(named(1, false)->object, (cl_uint)number(2), sizeof(cl_mem),
                              object ? (void *)&named(3, false)->object : (void *)&plain),
           "");
}

static void do_launch(void) {
    const size_t size = 1;
    answer(CL(clEnqueueNDRangeKernel)(named(1, false)->object, named(2, false)->object, 1, NULL,
                                      &size, NULL, 0, NULL, NULL),
           "");
}

// Several at once

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
    uint64_t n = number(2);
    cl_int status = CL_SUCCESS;
    stormed = named(1, false)->object;
    times = number(3);
    if (n > 64)
        misunderstood();
    for (uintptr_t i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, storm, (void *)(i + 1)) != 0)
            misunderstood();
    for (uint64_t i = 0; i < n; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        if (failed)
            status = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    }
    answer(status, "");
}

static size_t chained;

static void CL_CALLBACK make_another(cl_mem memory, void *context) {
    cl_int status = CL_SUCCESS;
    (void)memory;
    CL(clCreateBuffer)(context, CL_MEM_READ_WRITE, chained, NULL, &status);
}

static void do_chain(void) {
    chained = number(3);
    answer(CL(clSetMemObjectDestructorCallback)(named(1, false)->object, make_another,
                                                named(2, false)->object),
           "");
}

static void do_forked(void) {
    int ended = 0;
    pid_t child = fork();
    if (child == 0) {
        CL(clReleaseMemObject)(named(1, false)->object);
        _exit(0);
    }
    waitpid(child, &ended, 0);
    answer(ended, "");
}

// The rest

static void do_info(void) {
    cl_ulong value = 0;
    cl_int status = CL(clGetDeviceInfo)(
        device,
        strcmp(word[0], "total") == 0 ? CL_DEVICE_GLOBAL_MEM_SIZE : CL_DEVICE_MAX_MEM_ALLOC_SIZE,
        sizeof value, &value, NULL);
    answer_number(status, value);
}

static void do_free(void) {
    size_t kib[2] = {0, 0};
    char more[64];
    cl_int status =
        CL(clGetDeviceInfo)(device, CL_DEVICE_GLOBAL_FREE_MEMORY_AMD, sizeof kib, kib, NULL);
    snprintf(more, sizeof more, "%zu %zu", kib[0], kib[1]);
    answer(status, more);
}

static void do_pid(void) {
    answer_number(CL_SUCCESS, (uint64_t)getpid());
}

static void do_exit(void) {
    exit((int)number(1));
}

static const struct {
    const char *name;
    void (*run)(void);
} verbs[] = {
    {"context", do_context},   {"contexttype", do_context},
    {"two", do_context},       {"retain", do_retain},
    {"drop", do_drop},         {"buffer", do_buffer},
    {"properties", do_buffer}, {"hostbuffer", do_buffer},
    {"sub", do_sub},           {"image", do_image},
    {"old", do_image},         {"cube", do_image},
    {"layers", do_image},      {"hold", do_hold},
    {"release", do_release},   {"svm", do_svm},
    {"svmfree", do_svmfree},   {"svmlater", do_svmlater},
    {"fire", do_fire},         {"total", do_info},
    {"largest", do_info},      {"storm", do_storm},
    {"chain", do_chain},       {"forked", do_forked},
    {"free", do_free},         {"pid", do_pid},
    {"exit", do_exit},         {"queue", do_queue},
    {"fill", do_fill},         {"wrongfill", do_fill},
    {"copy", do_copy},         {"map", do_map},
    {"kernel", do_kernel},     {"endkernel", do_endkernel},
    {"argument", do_argument}, {"plain", do_argument},
    {"launch", do_launch},
};

static void run(char *line) {
    char *rest = NULL;
    words = 0;
    for (char *w = strtok_r(line, " \t\r\n", &rest); w && words < WORDS;
         w = strtok_r(NULL, " \t\r\n", &rest))
        word[words++] = w;
    if (words == 0)
        return;
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(verbs[i].name, word[0]) == 0) {
            verbs[i].run();
            return;
        }
    misunderstood();
}

static void run_line(char *line) {
    char *rest = NULL;
    for (char *one = strtok_r(line, ";", &rest); one; one = strtok_r(NULL, ";", &rest))
        run(one);
}

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
    for (int i = 1; i < argc; i++)
        run_line(argv[i]);
    static char line[4096];
    while (argc == 1 && fgets(line, sizeof line, stdin))
        run_line(line);
    return 0;
}
