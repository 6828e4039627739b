// SPDX-License-Identifier: Apache-2.0
#include "cuda/query.h"

#include "core/budget.h"
#include "cuda/device.h"

// The driver's device, of `capacity` bytes. False: the driver's own answer stands.
static bool ask(ga_cu_device ordinal, uint64_t capacity, struct ga_budget *answer) {
    struct ga_root *root = ga_root_get();
    int device = root ? ga_cuda_device_number(root, ordinal) : -1;
    return device >= 0 && ga_budget_ask(root, root->devices[device].uuid, capacity, answer);
}

// The same of the current context's.
static bool ask_current(uint64_t capacity, struct ga_budget *answer) {
    ga_cu_device ordinal = -1;
    return GA_REAL(cuCtxGetDevice) && GA_REAL(cuCtxGetDevice)(&ordinal) == GA_CUDA_SUCCESS &&
           ask(ordinal, capacity, answer);
}

static bool ask_total(ga_cu_device ordinal, uint64_t capacity, uint64_t *total) {
    struct ga_budget answer;
    if (!ask(ordinal, capacity, &answer))
        return false;
    *total = answer.total;
    return true;
}

static unsigned int narrow(uint64_t value) {
    return value > UINT32_MAX ? UINT32_MAX : (unsigned int)value;
}

// The driver answers first: its errors are the program's.
ga_result ga_cuda_get_info(GA_FN_cuMemGetInfo_v2 *real, size_t *room, size_t *total) {
    struct ga_budget answer;
    ga_result result = real(room, total);
    if (result != GA_CUDA_SUCCESS || !ask_current(total ? *total : UINT64_MAX, &answer))
        return result;
    if (room)
        *room = answer.room;
    if (total)
        *total = answer.total;
    return result;
}

ga_result ga_cuda_get_info_v1(GA_FN_cuMemGetInfo *real, unsigned int *room, unsigned int *total) {
    struct ga_budget answer;
    ga_result result = real(room, total);
    if (result != GA_CUDA_SUCCESS || !ask_current(UINT64_MAX, &answer))
        return result;
    if (room)
        *room = narrow(answer.room);
    if (total)
        *total = narrow(answer.total);
    return result;
}

ga_result ga_cuda_total(GA_FN_cuDeviceTotalMem_v2 *real, size_t *bytes, ga_cu_device device) {
    uint64_t total;
    ga_result result = real(bytes, device);
    if (result == GA_CUDA_SUCCESS && bytes && ask_total(device, *bytes, &total))
        *bytes = total;
    return result;
}

ga_result ga_cuda_total_v1(GA_FN_cuDeviceTotalMem *real, unsigned int *bytes, ga_cu_device device) {
    uint64_t total;
    ga_result result = real(bytes, device);
    if (result == GA_CUDA_SUCCESS && bytes && ask_total(device, UINT64_MAX, &total))
        *bytes = narrow(total);
    return result;
}
