// SPDX-License-Identifier: Apache-2.0
#include "cuda/measure.h"

#include "core/session.h"
#include "cuda/state.h"

#define READINGS 10   // of a process in a second
#define TURN_MS 10000 // for a turn: a load may compile
#define FRESH_MS 1000 // for so long what a call ended with is what the next one begins with

static bool may_read(struct ga_root *root) {
    uint64_t now = ga_os_coarse_ms();
    uint64_t since = atomic_load(&ga_cuda(root)->readings_since);
    if (now - since >= 1000 &&
        atomic_compare_exchange_strong(&ga_cuda(root)->readings_since, &since, now))
        atomic_store(&ga_cuda(root)->readings, 0);
    return atomic_fetch_add(&ga_cuda(root)->readings, 1) < READINGS;
}

static bool read_device(struct ga_root *root, uint32_t device, struct ga_wire_measure_reply *out) {
    struct ga_wire_measure_request request = {0};
    struct ga_reply reply = {.request = 0};
    if (ga_session_ensure(root) != GA_WAY_ASK || !(atomic_load(&root->able) & GA_ABLE_MEASURE) ||
        !may_read(root) ||
        ga_session_ask(root, GA_TYPE_MEASURE, (int)device, &request, sizeof request, &reply) !=
            GA_WAY_ASK ||
        reply.header.status != GA_STATUS_OK ||
        !ga_message_fits(&reply, sizeof reply.body.measure) || !reply.body.measure.known)
        return false;
    *out = reply.body.measure;
    return true;
}

// Bytes that are charged, of which the driver may have none yet.
static uint64_t on_their_way(struct ga_root *root, uint32_t device) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < atomic_load(&root->threads_used); i++) {
        struct ga_thread *t = ga_threads_at(root, i);
        if (atomic_load(&t->device) == device)
            sum += atomic_load(&t->inflight);
    }
    return sum;
}

void ga_cuda_measure_begin(struct ga_root *root, uint32_t device, struct ga_cuda_measure *m) {
    struct ga_cuda_measured *last = &ga_cuda(root)->measured[device];
    struct ga_wire_measure_reply r;
    *m = (struct ga_cuda_measure){.mine = ga_mutex_lock(&last->turn, TURN_MS),
                                  .device = device,
                                  .contexts = atomic_load(&root->devices[device].contexts),
                                  .imports = atomic_load(&root->imports_changed)};
    if (!m->mine)
        return;
    if (ga_os_coarse_ms() - atomic_load(&last->at_ms) < FRESH_MS &&
        atomic_load(&last->contexts) == m->contexts && atomic_load(&last->imports) == m->imports) {
        m->base = (int64_t)atomic_load(&last->beyond);
        m->known = true;
    } else if (read_device(root, device, &r)) {
        uint64_t way = on_their_way(root, device);
        m->base = (int64_t)r.figure - (int64_t)(r.least > way ? r.least - way : 0);
        m->known = true;
    }
    if (m->base < 0)
        m->base = 0;
}

uint64_t ga_cuda_measure_taken(struct ga_root *root, struct ga_cuda_measure *m) {
    struct ga_cuda_measured *last = &ga_cuda(root)->measured[m->device];
    struct ga_wire_measure_reply r;
    if (!m->known || !read_device(root, m->device, &r) ||
        atomic_load(&root->devices[m->device].contexts) != m->contexts ||
        atomic_load(&root->imports_changed) != m->imports)
        return 0;
    int64_t beyond = (int64_t)r.figure - (int64_t)r.most;
    uint64_t ahead = atomic_exchange(&ga_cuda(root)->ahead[m->device], 0);
    int64_t took = beyond - m->base - (int64_t)ahead;
    if (took < 0)
        took = 0;
    // What is charged from now on is beyond the bytes no more.
    atomic_store(&last->beyond, (uint64_t)(beyond - took > 0 ? beyond - took : 0));
    atomic_store(&last->contexts, m->contexts);
    atomic_store(&last->imports, m->imports);
    atomic_store(&last->at_ms, ga_os_coarse_ms());
    return (uint64_t)took;
}

void ga_cuda_measure_done(struct ga_root *root, const struct ga_cuda_measure *m) {
    if (m->mine)
        ga_mutex_unlock(&ga_cuda(root)->measured[m->device].turn);
}
