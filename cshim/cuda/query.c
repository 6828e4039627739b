// SPDX-License-Identifier: Apache-2.0
// Reads budgets for the wrappers that report memory sizes (query.h).
#include "cuda/query.h"

#include "core/publish.h"
#include "cuda/device.h"

bool ga_cuda_query(ga_cu_device ordinal, uint64_t capacity, struct ga_budget *answer) {
    struct ga_root *root = ga_root_get();
    int device = root ? ga_cuda_device_number(root, ordinal) : -1;
    if (device < 0)
        return false;
    ga_publish_call(root, (uint32_t)device);
    return ga_budget_ask(root, root->devices[device].uuid, capacity, answer);
}

bool ga_cuda_query_current(uint64_t capacity, struct ga_budget *answer) {
    ga_cu_device ordinal = -1;
    return GA_ASK(cuCtxGetDevice, &ordinal) && ga_cuda_query(ordinal, capacity, answer);
}
