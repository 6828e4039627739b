// SPDX-License-Identifier: Apache-2.0
// The variables that a program is started with. They are read once, at the first GPU call, because
// another thread may change the environment at any time. GPUARB_LOG and GPUARB_QUIET are read by
// log.c.
#ifndef GA_ENV_H
#define GA_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "core/wire.h"

struct ga_env {
    bool virtualize;        // GPUARB_VIRTUALIZE, default true
    bool in_job;            // GPUARB_JOB holds a token
    bool loss_closed;       // what to do without a daemon, until one has said
    bool loss_named_closed; // GPUARB_ON_LOSS says closed: it stays so
    uint64_t host;          // GPUARB_HOST in bytes, or GA_NO_LIMIT
    const char *wrong;      // a size that cannot be read: its variable, or NULL
    const char *wrong_what; // the kind of value that it should have
    char wrong_value[64];   // its value, cut off after 63 bytes
    char socket[3][108];    // the daemon's, to try in this order; empty: no more
    // What a daemon is told: the token; GPUARB_MEMORY, GPUARB_STREAM_RESERVE in bytes, or
    // GA_NO_LIMIT; GPUARB_MEMORY as a share, per mille, GPUARB_STREAMS, GPUARB_SLOTS,
    // GPUARB_ON_FULL and GPUARB_SLOT_SCOPE, or 0.
    struct ga_wire_hello_request hello;
};

void ga_env_read(struct ga_env *env);

// A size as people write it: 4G, 4GiB, 4096M, 123, 1.5G, max. False: not a size.
bool ga_env_size(const char *text, uint64_t *bytes);
// A share as people write it: 25%, 12.5%. False: not a share of 0.1% to 100%.
bool ga_env_share(const char *text, uint32_t *per_mille);

#endif
