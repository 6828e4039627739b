// SPDX-License-Identifier: Apache-2.0
// An OpenCL of version 1.2 on the first two devices of the simulated driver, as far as clprog needs
// it. Its platform cannot report when a context ends. A program that asks for that crashes, as with
// a loader that calls beyond the end of a shorter table. Functions of later versions are missing.
//
// With OLDOPENCL_TELLS its version is 3.0, and it reports the ends of contexts. A new context has
// the handle of the context that ended last.
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct _cl_context {
    atomic_int references;
    cl_uint count;
    cl_device_id devices[2];
    void(CL_CALLBACK *ended)(cl_context, void *);
    void *arg;
};
struct _cl_mem {
    atomic_int references;
    cl_context context;
    cl_mem whole; // buffer that it is a part of
    void(CL_CALLBACK *ended)(cl_mem, void *);
    void *arg;
};
struct _cl_command_queue {
    cl_device_id device;
};
static int platform;
static int devices[2];
static _Atomic(cl_context) last; // the context that ended last

#define EXPORT CL_API_ENTRY

EXPORT cl_int CL_API_CALL clGetPlatformIDs(cl_uint room, cl_platform_id *to, cl_uint *count) {
    if (room)
        *to = (cl_platform_id)&platform;
    if (count)
        *count = 1;
    return CL_SUCCESS;
}

static cl_int tell(const void *value, size_t size, size_t room, void *to, size_t *needed) {
    if (needed)
        *needed = size;
    if (to && room < size)
        return CL_INVALID_VALUE;
    if (to)
        memcpy(to, value, size);
    return CL_SUCCESS;
}

static int tells(void) {
    return getenv("OLDOPENCL_TELLS") != NULL;
}

EXPORT cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id of, cl_platform_info what, size_t room,
                                            void *to, size_t *needed) {
    const char *version = tells() ? "OpenCL 3.0 of a test" : "OpenCL 1.2 of a test";
    (void)of;
    return what == CL_PLATFORM_VERSION ? tell(version, strlen(version) + 1, room, to, needed)
                                       : CL_INVALID_VALUE;
}

EXPORT cl_int CL_API_CALL clGetDeviceIDs(cl_platform_id of, cl_device_type type, cl_uint room,
                                         cl_device_id *to, cl_uint *count) {
    (void)of;
    (void)type;
    for (cl_uint i = 0; i < room && i < 2; i++)
        to[i] = (cl_device_id)&devices[i];
    if (count)
        *count = 2;
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t room,
                                          void *to, size_t *needed) {
    unsigned char index = (unsigned char)((int *)(void *)device - devices);
    cl_device_type type = CL_DEVICE_TYPE_GPU;
    cl_platform_id on = (cl_platform_id)&platform;
    cl_ulong bytes = 1ull << 30;
    size_t room_kib[2] = {1 << 20, 1 << 19};
    unsigned char uuid[16] = {0x51, 0x3c, 0xda, index + 1, 0, 0, 0x40, 0, 0x80};
    uuid[15] = index + 1;
    switch (what) {
    case CL_DEVICE_TYPE:
        return tell(&type, sizeof type, room, to, needed);
    case CL_DEVICE_PLATFORM:
        return tell(&on, sizeof on, room, to, needed);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        return tell(&bytes, sizeof bytes, room, to, needed);
    case CL_DEVICE_UUID_KHR:
        return tell(uuid, sizeof uuid, room, to, needed);
    case CL_DEVICE_GLOBAL_FREE_MEMORY_AMD:
        return tell(room_kib, sizeof room_kib, room, to, needed);
    }
    return CL_INVALID_VALUE;
}

EXPORT cl_context CL_API_CALL clCreateContext(const cl_context_properties *properties,
                                              cl_uint count, const cl_device_id *of,
                                              void(CL_CALLBACK *notify)(const char *, const void *,
                                                                        size_t, void *),
                                              void *arg, cl_int *status) {
    cl_context c = atomic_exchange(&last, NULL);
    (void)properties;
    (void)notify;
    (void)arg;
    if (!c)
        c = malloc(sizeof *c);
    if (!c || count < 1 || count > 2)
        abort();
    *c = (struct _cl_context){.references = 1};
    c->count = count;
    memcpy(c->devices, of, count * sizeof *of);
    if (status)
        *status = CL_SUCCESS;
    return c;
}

EXPORT cl_context CL_API_CALL
clCreateContextFromType(const cl_context_properties *properties, cl_device_type type,
                        void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                        void *arg, cl_int *status) {
    cl_device_id all[2];
    clGetDeviceIDs(NULL, type, 2, all, NULL);
    return clCreateContext(properties, 2, all, notify, arg, status);
}

EXPORT cl_int CL_API_CALL clGetContextInfo(cl_context c, cl_context_info what, size_t room,
                                           void *to, size_t *needed) {
    return what == CL_CONTEXT_DEVICES
               ? tell(c->devices, c->count * sizeof c->devices[0], room, to, needed)
               : CL_INVALID_VALUE;
}

EXPORT cl_int CL_API_CALL clRetainContext(cl_context c) {
    atomic_fetch_add(&c->references, 1);
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clReleaseContext(cl_context c) {
    if (!c)
        return CL_INVALID_CONTEXT;
    if (atomic_fetch_sub(&c->references, 1) != 1)
        return CL_SUCCESS;
    if (c->ended)
        c->ended(c, c->arg);
    free(atomic_exchange(&last, c));
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clSetContextDestructorCallback(
    cl_context c, void(CL_CALLBACK *ended)(cl_context, void *), void *arg) {
    if (!tells())
        abort();
    c->ended = ended;
    c->arg = arg;
    return CL_SUCCESS;
}

EXPORT cl_mem CL_API_CALL clCreateBuffer(cl_context c, cl_mem_flags flags, size_t size, void *host,
                                         cl_int *status) {
    cl_mem m = calloc(1, sizeof *m);
    (void)flags;
    (void)size;
    (void)host;
    if (!m)
        abort();
    m->references = 1;
    m->context = c;
    clRetainContext(c); // called through the global scope, as a driver's own reference
    if (status)
        *status = CL_SUCCESS;
    return m;
}

EXPORT cl_int CL_API_CALL clRetainMemObject(cl_mem m) {
    atomic_fetch_add(&m->references, 1);
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clReleaseMemObject(cl_mem m) {
    if (!m)
        return CL_INVALID_MEM_OBJECT;
    if (atomic_fetch_sub(&m->references, 1) == 1) {
        if (m->ended)
            m->ended(m, m->arg);
        if (m->whole)
            clReleaseMemObject(m->whole);
        clReleaseContext(m->context);
        free(m);
    }
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clSetMemObjectDestructorCallback(cl_mem m,
                                                           void(CL_CALLBACK *ended)(cl_mem, void *),
                                                           void *arg) {
    m->ended = ended;
    m->arg = arg;
    return CL_SUCCESS;
}

EXPORT cl_mem CL_API_CALL clCreateSubBuffer(cl_mem of, cl_mem_flags flags,
                                            cl_buffer_create_type type, const void *region,
                                            cl_int *status) {
    (void)type;
    (void)region;
    cl_mem m = clCreateBuffer(of->context, flags, 1, NULL, status);
    clRetainMemObject(of);
    m->whole = of;
    return m;
}

// Queues do nothing. A command on NULL is refused.

EXPORT cl_command_queue CL_API_CALL clCreateCommandQueue(cl_context c, cl_device_id device,
                                                         cl_command_queue_properties properties,
                                                         cl_int *status) {
    cl_command_queue q = calloc(1, sizeof *q);
    (void)c;
    (void)properties;
    if (!q)
        abort();
    q->device = device;
    if (status)
        *status = CL_SUCCESS;
    return q;
}

static cl_int done(cl_mem a, cl_mem b) {
    return a && b ? CL_SUCCESS : CL_INVALID_MEM_OBJECT;
}

EXPORT cl_int CL_API_CALL clEnqueueFillBuffer(cl_command_queue q, cl_mem m, const void *pattern,
                                              size_t length, size_t at, size_t size, cl_uint waits,
                                              const cl_event *wait_for, cl_event *event) {
    (void)q, (void)pattern, (void)at, (void)size, (void)waits, (void)wait_for, (void)event;
    return length ? done(m, m) : CL_INVALID_VALUE;
}

EXPORT cl_int CL_API_CALL clEnqueueCopyBuffer(cl_command_queue q, cl_mem from, cl_mem to, size_t at,
                                              size_t to_at, size_t size, cl_uint waits,
                                              const cl_event *wait_for, cl_event *event) {
    (void)q, (void)at, (void)to_at, (void)size, (void)waits, (void)wait_for, (void)event;
    return done(from, to);
}
