// SPDX-License-Identifier: Apache-2.0
// The variables that a program is started with, read once at the first GPU call.
#ifndef GA_ENV_H
#define GA_ENV_H

#include <stdbool.h>
#include <stdint.h>

struct ga_env {
    bool virtualize;         // GPUARB_VIRTUALIZE, default true
    bool in_job;             // GPUARB_JOB holds a token
    bool loss_closed;        // what to do without a daemon, until one has said
    bool loss_named_closed;  // GPUARB_ON_LOSS says closed: it stays so
    uint8_t job[16];         // the token
    uint64_t memory;         // GPUARB_MEMORY in bytes, or GA_NO_LIMIT
    uint32_t memory_mill;    // GPUARB_MEMORY as a share, per mille, or 0
    uint64_t host;           // GPUARB_HOST in bytes, or GA_NO_LIMIT
    uint32_t streams;        // GPUARB_STREAMS, or 0
    uint32_t on_full;        // GPUARB_ON_FULL: GA_ON_FULL_…, or 0
    uint32_t slots;          // GPUARB_SLOTS, or 0
    uint32_t slot_scope;     // GPUARB_SLOT_SCOPE: GA_SCOPE_…, or 0
    uint64_t stream_reserve; // GPUARB_STREAM_RESERVE in bytes, or GA_NO_LIMIT
    const char *wrong;       // a size that cannot be read: its variable, or NULL
    const char *wrong_what;  // what it is not
    char socket[2][108];     // where the daemon may be, in order; empty: no further one
};

void ga_env_read(struct ga_env *env);

// A size as people write it: 4G, 4GiB, 4096M, 123, 1.5G, max. False: not a size.
bool ga_env_size(const char *text, uint64_t *bytes);
// A share as people write it: 25%, 12.5%. False: not a share of 0.1% to 100%.
bool ga_env_share(const char *text, uint32_t *per_mille);

#endif
