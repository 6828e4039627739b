// SPDX-License-Identifier: Apache-2.0
// Takes slots for a context, and returns them when the context ends (context.h).
#include "opencl/context.h"

#include "core/admit.h"
#include "core/slots.h"
#include "opencl/call.h"
#include "opencl/device.h"
#include "opencl/state.h"

// The record of a context.
struct ga_opencl_context {
    struct ga_opencl_context_slots slots;
    ga_cl_context handle;
    // Used if the driver does not report the context's end: the number of references that the
    // program has, and the next such context. Guarded by ga_opencl_state.lock.
    uint32_t references;
    struct ga_opencl_context *next;
};

bool ga_opencl_context_ask(struct ga_opencl_context_request *s, const ga_cl_device *devices,
                           ga_cl_uint count) {
    bool wanted[GA_DEVICES] = {false};
    *s = (struct ga_opencl_context_request){.root = ga_root_get(), .slots.full = s->slots.full};
    if (!s->root)
        return !ga_root_denies();
    for (ga_cl_uint i = 0; devices && i < count; i++) {
        int number = ga_opencl_device_arbitrated(s->root, devices[i]);
        if (number < 0)
            continue;
        wanted[number] = true;
        s->any = devices[i];
    }
    if (!s->any)
        s->root = NULL; // the driver alone decides
    return !s->any || ga_slots_acquire(s->root, &s->slots, wanted);
}

// Returns the value of a property in a list of names and values that ends with 0; 0: not in the
// list.
static intptr_t find_property(const intptr_t *properties, intptr_t name) {
    for (; properties && properties[0]; properties += 2)
        if (properties[0] == name)
            return properties[1];
    return 0;
}

bool ga_opencl_context_ask_type(struct ga_opencl_context_request *s, const intptr_t *properties,
                                ga_cl_bits type) {
    ga_cl_platform platform = (ga_cl_platform)find_property(properties, GA_CL_CONTEXT_PLATFORM);
    ga_cl_uint count = 0;
    GA_FN_clGetDeviceIDs *list = GA_OPENCL_REAL(clGetDeviceIDs);
    *s = (struct ga_opencl_context_request){.root = NULL, .slots.full = s->slots.full};
    if (!list || list(platform, type, 0, NULL, &count) != GA_CL_SUCCESS || count == 0)
        return true; // the driver will fail the program's call, with the reason
    size_t size = count * sizeof(ga_cl_device);
    ga_cl_device *devices = ga_os_map(size);
    if (!devices)
        return false;
    ga_cl_uint room = count;
    bool asked = list(platform, type, room, devices, &count) != GA_CL_SUCCESS ||
                 ga_opencl_context_ask(s, devices, count < room ? count : room);
    ga_os_unmap(devices, size);
    return asked;
}

// Is called by the driver when a context ends.
static void ended(ga_cl_context context, void *arg) {
    (void)context;
    ga_opencl_call_context_ended(arg);
}

// Begins to count the program's references to a context whose end the driver does not report.
static void count(struct ga_root *root, struct ga_opencl_context *record) {
    struct ga_opencl_state *state = ga_opencl(root);
    record->references = 1;
    ga_self_lock(&state->lock);
    record->next = state->counted;
    state->counted = record;
    ga_self_unlock(&state->lock);
}

// Adds 1 or −1 to the references of a context. If none are left, removes the context's record from
// the list and returns it; else returns NULL.
static struct ga_opencl_context *change(struct ga_root *root, ga_cl_context context, int by) {
    struct ga_opencl_state *state = ga_opencl(root);
    struct ga_opencl_context *last = NULL;
    ga_self_lock(&state->lock);
    for (struct ga_opencl_context **at = &state->counted; *at; at = &(*at)->next) {
        if ((*at)->handle != context)
            continue;
        (*at)->references += (uint32_t)by;
        if ((*at)->references == 0) {
            last = *at;
            *at = last->next;
        }
        break;
    }
    ga_self_unlock(&state->lock);
    return last;
}

// Registers the function ended with the driver. False: the driver cannot report the end.
static bool register_end(const struct ga_opencl_context *record, ga_cl_device any) {
    return ga_opencl_device_is_3(any) &&
           GA_OPENCL_ASK(clSetContextDestructorCallback, record->handle, ended,
                         (void *)(uintptr_t)&record->slots);
}

// Makes the record of a context. False: no memory.
static bool keep(const struct ga_opencl_context_request *s, ga_cl_context context) {
    struct ga_opencl_context *record =
        ga_records_acquire(s->root, &ga_opencl(s->root)->contexts, sizeof *record);
    if (!record)
        return false;
    *record = (struct ga_opencl_context){
        .slots = {.generation = atomic_load(&s->root->generation), .slots = s->slots},
        .handle = context};
    if (!register_end(record, s->any))
        count(s->root, record);
    return true;
}

ga_cl_context ga_opencl_context_made(const struct ga_opencl_context_request *s,
                                     ga_cl_context context, ga_cl_int *status) {
    if (!s->root)
        return context;
    ga_slots_made(s->root, &s->slots);
    if (context && keep(s, context))
        return context;
    // Either the driver failed, or there is no memory for the record. In the second case the
    // context is released again, because its slots would never be released. If the driver refuses
    // the release, the program has the context, and its slots stay taken.
    bool undone = context && GA_OPENCL_ASK(clReleaseContext, context);
    if (!context || undone)
        ga_slots_release(s->root, &s->slots);
    return undone ? ga_opencl_refused(status, GA_CL_OUT_OF_RESOURCES) : context;
}

ga_cl_int ga_opencl_context_retain(GA_FN_clRetainContext *real, ga_cl_context context) {
    struct ga_root *root = ga_root_get();
    ga_cl_int result = real(context);
    if (root && result == GA_CL_SUCCESS)
        change(root, context, 1);
    return result;
}

// Counts the release before the driver is called, because the driver may give the handle to a new
// context at once. If the driver refuses, the reference is counted again.
ga_cl_int ga_opencl_context_release(GA_FN_clReleaseContext *real, ga_cl_context context) {
    struct ga_root *root = ga_root_get();
    struct ga_opencl_context *last = root ? change(root, context, -1) : NULL;
    ga_cl_int result = real(context);
    if (last && result == GA_CL_SUCCESS)
        ga_opencl_call_context_ended(&last->slots);
    else if (last)
        count(root, last);
    else if (root && result != GA_CL_SUCCESS)
        change(root, context, 1);
    return result;
}
