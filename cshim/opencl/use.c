// SPDX-License-Identifier: Apache-2.0
#include "opencl/use.h"

#include "core/admit.h"
#include "opencl/device.h"
#include "opencl/state.h"

void ga_opencl_use_context(const bool devices[GA_DEVICES]) {
    uint32_t count = 0;
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        count += devices[d];
    if (count > 1)
        atomic_store(&ga_opencl_charge_several, 1);
}

// state->used says which charge an object has, and the objects that are a kernel's arguments. Both
// may be gone, or be others by the same handle: then the number of the charge is another one.

static uint64_t key_of(const void *handle) {
    return (uint64_t)(uintptr_t)handle;
}

#define INDEX_SHIFT 48
#define INDICES 0x7fffu // more arguments than any device takes

static uint64_t key_of_argument(const void *kernel, ga_cl_uint index) {
    return key_of(kernel) | ((uint64_t)index + 1) << INDEX_SHIFT;
}

static bool find(struct ga_root *root, uint64_t key, struct ga_entry *entry) {
    return ga_self_find(&ga_opencl(root)->used, key, entry);
}

static void put(struct ga_root *root, uint64_t key, uint64_t charge, uint64_t number) {
    struct ga_entry entry = {.key = key, .bytes = number, .context = charge};
    struct ga_entry old;
    ga_self_put(&ga_opencl(root)->used, &entry, &old);
}

static void forget(struct ga_root *root, uint64_t key) {
    struct ga_entry entry;
    ga_self_take(&ga_opencl(root)->used, key, &entry);
}

void ga_opencl_use_object(struct ga_root *root, ga_cl_mem memory, struct ga_opencl_charge *charge) {
    if (ga_opencl_charge_may_have_parts())
        put(root, key_of(memory), (uint64_t)(uintptr_t)charge, charge->number);
}

ga_cl_mem ga_opencl_use_part(ga_cl_mem of, ga_cl_mem memory) {
    struct ga_root *root = ga_opencl_charge_may_have_parts() && memory && of ? ga_root_get() : NULL;
    struct ga_entry whole;
    if (root && find(root, key_of(of), &whole))
        put(root, key_of(memory), whole.context, whole.bytes);
    return memory;
}

// The root, where a queue's device is one that is charged.
static bool begin(struct ga_opencl_use *u, ga_cl_queue queue) {
    ga_cl_device device = NULL;
    *u = (struct ga_opencl_use){.root = ga_root_get()};
    if (u->root && !GA_OPENCL_ASK(clGetCommandQueueInfo, queue, GA_CL_QUEUE_DEVICE, sizeof device,
                                  &device, NULL))
        u->root = NULL;
    int number = u->root ? ga_opencl_device_used(u->root, device) : -1;
    u->device = (uint32_t)number;
    if (number < 0)
        u->root = NULL;
    return u->root != NULL;
}

// The charge of an entry, where that lives and is not charged to the device yet; NULL: nothing is
// to be done.
static struct ga_opencl_charge *lacking(struct ga_opencl_use *u, const struct ga_entry *e,
                                        struct ga_entry *bytes) {
    struct ga_opencl_charge *whole = (struct ga_opencl_charge *)(uintptr_t)e->context;
    struct ga_opencl_state *state = ga_opencl(u->root);
    ga_self_lock(&state->lock);
    bool lacks = whole->number == e->bytes && !(whole->held.on >> u->device & 1);
    *bytes = (struct ga_entry){.bytes = atomic_load(&whole->held.bytes),
                               .device = (uint8_t)u->device,
                               .kind = whole->held.kind};
    ga_self_unlock(&state->lock);
    for (struct ga_opencl_charge *part = u->taken; part && lacks; part = part->held.next)
        lacks = part->parts != whole; // a command may use one twice
    return lacks ? whole : NULL;
}

// A part on its way has the charge that it will belong to where that has its parts.
static bool take(struct ga_opencl_use *u, uint64_t key) {
    struct ga_entry e, bytes;
    struct ga_opencl_charge *whole = find(u->root, key, &e) ? lacking(u, &e, &bytes) : NULL;
    if (!whole)
        return true;
    if (!ga_admit(u->root, u->device, bytes.bytes, bytes.kind, &bytes.tag))
        return false;
    struct ga_opencl_charge *part = ga_opencl_charge_hold(u->root, &bytes);
    if (!part) {
        ga_release_entry(u->root, &bytes);
        return false;
    }
    part->parts = whole;
    part->of = e.bytes;
    part->held.next = u->taken;
    u->taken = part;
    return true;
}

// False: it has ended, or another thread's command has charged it meanwhile.
static bool join(struct ga_opencl_use *u, struct ga_opencl_charge *part) {
    struct ga_opencl_charge *whole = part->parts;
    struct ga_opencl_state *state = ga_opencl(u->root);
    part->parts = NULL;
    ga_self_lock(&state->lock);
    bool joins = whole->number == part->of && !(whole->held.on >> u->device & 1);
    if (joins) {
        whole->held.on |= 1u << u->device;
        part->held.next = whole->parts;
        whole->parts = part;
    }
    ga_self_unlock(&state->lock);
    return joins;
}

void ga_opencl_use_done(struct ga_opencl_use *u, bool taken) {
    for (struct ga_opencl_charge *part = u->taken; part;) {
        struct ga_opencl_charge *next = part->held.next;
        if (!taken || !join(u, part))
            ga_opencl_charge_drop(u->root, part);
        part = next;
    }
}

bool ga_opencl_use_list(struct ga_opencl_use *u, ga_cl_queue queue, ga_cl_uint count,
                        const ga_cl_mem *list) {
    if (!begin(u, queue))
        return true;
    for (ga_cl_uint i = 0; list && i < count; i++)
        if (list[i] && !take(u, key_of(list[i]))) {
            ga_opencl_use_done(u, false);
            return false;
        }
    return true;
}

static ga_cl_uint arguments_of(ga_cl_object kernel) {
    ga_cl_uint count = 0;
    if (!GA_OPENCL_ASK(clGetKernelInfo, kernel, GA_CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL))
        return 0;
    return count < INDICES ? count : INDICES;
}

bool ga_opencl_use_kernel(struct ga_opencl_use *u, ga_cl_queue queue, ga_cl_object kernel) {
    if (!begin(u, queue))
        return true;
    ga_cl_uint count = arguments_of(kernel);
    for (ga_cl_uint i = 0; i < count; i++)
        if (!take(u, key_of_argument(kernel, i))) {
            ga_opencl_use_done(u, false);
            return false;
        }
    return true;
}

// Each argument is set before a kernel is used (CL_INVALID_KERNEL_ARGS), so that nothing is left of
// another kernel that had the handle. A number that happens to be an object's handle counts as the
// object: the driver knows which it is, and does not say.
static void set_argument(ga_cl_object kernel, ga_cl_uint index, ga_cl_mem memory) {
    struct ga_root *root = index < INDICES ? ga_root_get() : NULL;
    struct ga_entry e;
    if (!root)
        return;
    if (memory && find(root, key_of(memory), &e))
        put(root, key_of_argument(kernel, index), e.context, e.bytes);
    else
        forget(root, key_of_argument(kernel, index));
}

ga_cl_int ga_opencl_use_argument(GA_FN_clSetKernelArg *real, ga_cl_object kernel, ga_cl_uint index,
                                 size_t size, const void *value) {
    ga_cl_mem memory = NULL;
    ga_cl_int result = real(kernel, index, size, value);
    if (result != GA_CL_SUCCESS)
        return result;
    if (value && size == sizeof memory)
        ga_os_copy(&memory, value, sizeof memory);
    set_argument(kernel, index, memory);
    return result;
}

ga_cl_int ga_opencl_use_address(GA_FN_clSetKernelArgSVMPointer *real, ga_cl_object kernel,
                                ga_cl_uint index, const void *value) {
    ga_cl_int result = real(kernel, index, value);
    if (result == GA_CL_SUCCESS)
        set_argument(kernel, index, NULL);
    return result;
}

ga_cl_object ga_opencl_use_clone(GA_FN_clCloneKernel *real, ga_cl_object kernel,
                                 ga_cl_int *status) {
    ga_cl_object clone = real(kernel, status);
    struct ga_root *root = clone ? ga_root_get() : NULL;
    ga_cl_uint count = root ? arguments_of(clone) : 0;
    for (ga_cl_uint i = 0; i < count; i++) {
        struct ga_entry e;
        if (find(root, key_of_argument(kernel, i), &e))
            put(root, key_of_argument(clone, i), e.context, e.bytes);
        else
            forget(root, key_of_argument(clone, i));
    }
    return clone;
}
