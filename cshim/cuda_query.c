// SPDX-License-Identifier: Apache-2.0
#include "cuda_query.h"

#include "cuda_device.h"
#include "session.h"

struct answer {
    uint64_t total;
    uint64_t room;
};

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

// Free is the budget less what is used, and never more than the device had room for when the
// program first asked: frameworks abort when it grows by what others do. The most that it can
// be is therefore fixed then, as room + used. One that is 0 is not fixed yet.
static uint64_t latch(struct ga_device *d, uint64_t room, uint64_t used) {
    uint64_t seen = 0;
    uint64_t most = room + used;
    if (atomic_compare_exchange_strong(&d->latched, &seen, most))
        return most;
    return seen;
}

// A mere question: it opens a session, and no lease. False: the driver's own answer stands.
static bool ask(struct ga_root *root, uint32_t device, struct answer *answer) {
    struct ga_wire_query_request query;
    struct ga_reply reply = {.request = 0};
    struct ga_device *d = &root->devices[device];
    if (!root->env.virtualize)
        return false;
    ga_os_copy(query.device, d->uuid, sizeof query.device);
    if (ga_session_ask(root, GA_TYPE_QUERY, -1, &query, sizeof query, &reply, GA_REPLY_MS) !=
            GA_WAY_ASK ||
        reply.header.status != GA_STATUS_OK || !ga_session_fits(&reply, sizeof reply.body.query))
        return false;
    uint64_t used = reply.body.query.used;
    uint64_t most = least(reply.body.query.total, latch(d, reply.body.query.room, used));
    answer->total = reply.body.query.total;
    answer->room = most > used ? most - used : 0;
    return true;
}

static bool ask_current(struct answer *answer) {
    struct ga_root *root = ga_root_get();
    ga_cu_device device = -1;
    return root && GA_REAL(cuCtxGetDevice) && GA_REAL(cuCtxGetDevice)(&device) == GA_CUDA_SUCCESS &&
           ga_cuda_device_know(root, device) && ask(root, (uint32_t)device, answer);
}

static bool ask_device(ga_cu_device device, struct answer *answer) {
    struct ga_root *root = ga_root_get();
    return root && ga_cuda_device_know(root, device) && ask(root, (uint32_t)device, answer);
}

static unsigned int narrow(uint64_t value) {
    return value > UINT32_MAX ? UINT32_MAX : (unsigned int)value;
}

// The driver answers first: its errors are the program's.
ga_result ga_cuda_get_info(GA_FN_cuMemGetInfo_v2 *real, size_t *room, size_t *total) {
    struct answer answer;
    ga_result result = real(room, total);
    if (result != GA_CUDA_SUCCESS || !ask_current(&answer))
        return result;
    if (room)
        *room = answer.room;
    if (total)
        *total = answer.total;
    return result;
}

ga_result ga_cuda_get_info_v1(GA_FN_cuMemGetInfo *real, unsigned int *room, unsigned int *total) {
    struct answer answer;
    ga_result result = real(room, total);
    if (result != GA_CUDA_SUCCESS || !ask_current(&answer))
        return result;
    if (room)
        *room = narrow(answer.room);
    if (total)
        *total = narrow(answer.total);
    return result;
}

ga_result ga_cuda_total(GA_FN_cuDeviceTotalMem_v2 *real, size_t *bytes, ga_cu_device device) {
    struct answer answer;
    ga_result result = real(bytes, device);
    if (result == GA_CUDA_SUCCESS && bytes && ask_device(device, &answer))
        *bytes = least(*bytes, answer.total);
    return result;
}

ga_result ga_cuda_total_v1(GA_FN_cuDeviceTotalMem *real, unsigned int *bytes, ga_cu_device device) {
    struct answer answer;
    ga_result result = real(bytes, device);
    if (result == GA_CUDA_SUCCESS && bytes && ask_device(device, &answer))
        *bytes = narrow(answer.total);
    return result;
}
