// SPDX-License-Identifier: Apache-2.0
// Replaces memory sizes in the driver's answers by the budget (query.h).
#include "opencl/query.h"

#include "core/budget.h"
#include "core/publish.h"
#include "opencl/device.h"

// Reads the budget of a device. False: the driver's own answer stands.
static bool ask(ga_cl_device device, uint64_t capacity, struct ga_budget *budget) {
    struct ga_root *root = ga_root_get();
    int number = root ? ga_opencl_device_number(root, device) : -1;
    if (number < 0)
        return false;
    ga_publish_call(root, (uint32_t)number);
    return ga_budget_ask(root, root->devices[number].uuid, capacity, budget);
}

// Limits the two free sizes to the budget: all free memory and the largest free block, if the
// program's buffer has room for both.
static void report_free(ga_cl_device device, size_t size, size_t *free_kib) {
    struct ga_budget budget;
    if (!ask(device, UINT64_MAX, &budget))
        return;
    for (size_t i = 0; i < 2 && i < size / sizeof *free_kib; i++)
        free_kib[i] = ga_os_least(free_kib[i], budget.room / 1024);
}

// The driver answers first, and its errors are returned.
ga_cl_int ga_opencl_device_info(GA_FN_clGetDeviceInfo *real, ga_cl_device device, ga_cl_uint what,
                                size_t size, void *value, size_t *needed) {
    struct ga_budget budget;
    uint64_t *bytes = value;
    ga_cl_int result = real(device, what, size, value, needed);
    if (result != GA_CL_SUCCESS || !value || size < sizeof(uint64_t))
        return result;
    if (what == GA_CL_DEVICE_FREE_MEMORY)
        report_free(device, size, value);
    else if (what == GA_CL_DEVICE_GLOBAL_MEM_SIZE && ask(device, *bytes, &budget))
        *bytes = budget.total;
    else if (what == GA_CL_DEVICE_MAX_MEM_ALLOC_SIZE && ask(device, UINT64_MAX, &budget))
        *bytes = ga_os_least(*bytes, budget.total);
    return result;
}
