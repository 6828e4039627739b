// SPDX-License-Identifier: Apache-2.0
//
// Injected faults: finds the rules for a call, and carries them out.

#include "driver.h"

#include <fnmatch.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    uint64_t epoch;
    uint64_t calls[SIM_MAX_RULES]; // calls of this process
} own = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t count_own(struct sim_state *s, uint32_t i) {
    pthread_mutex_lock(&own.lock);
    uint64_t epoch = atomic_load(&s->rules_epoch);
    if (own.epoch != epoch) {
        for (uint32_t k = 0; k < SIM_MAX_RULES; k++)
            own.calls[k] = 0;
        own.epoch = epoch;
    }
    uint64_t n = ++own.calls[i];
    pthread_mutex_unlock(&own.lock);
    return n;
}

static CUresult act(struct sim_rule *r) {
    atomic_fetch_add(&r->hits, 1);
    switch (r->action) {
    case SIM_ACT_KILL:
        kill(getpid(), SIGKILL);
        break;
    case SIM_ACT_STOP:
        kill(getpid(), SIGSTOP);
        break;
    case SIM_ACT_DELAY: {
        struct timespec t = {(time_t)(r->delay_ns / 1000000000u),
                             (long)(r->delay_ns % 1000000000u)};
        nanosleep(&t, NULL);
        break;
    }
    default:
        return r->code;
    }
    return CUDA_SUCCESS;
}

// Counts the call in every matching rule. If several rules are due, the first with a code decides
// the result.
CUresult fault_check(const char *function) {
    struct sim_state *s = drv.sim;
    uint32_t n = atomic_load(&s->rule_count);
    CUresult rc = CUDA_SUCCESS;
    for (uint32_t i = 0; i < n && i < SIM_MAX_RULES; i++) {
        struct sim_rule *r = &s->rule[i];
        if ((r->pid && r->pid != drv.me->pid) || fnmatch(r->pattern, function, 0) != 0)
            continue;
        uint64_t call = atomic_fetch_add(&r->calls, 1) + 1;
        if (r->per_process)
            call = count_own(s, i);
        if (call < r->first || call > r->last || (r->every && call % r->every != 0))
            continue;
        if (!rc)
            rc = act(r);
    }
    return rc;
}
