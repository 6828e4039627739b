// SPDX-License-Identifier: Apache-2.0
// The environment variables that limit a program. root.c has them read once, at the first GPU call,
// because another thread may change the environment at any time. log.c reads GPUARB_LOG and
// GPUARB_QUIET. After ga_env_read the struct is constant, so it needs no lock.
#ifndef GA_ENV_H
#define GA_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "core/wire.h"

// Whether the first request of a burst is refused instead of waiting. GA_FIRST_BY_RULE: wait_after
// of the rule decides. If the rule has none, the first request is refused if an allocator with a
// cache is loaded.
enum ga_refuse_first { GA_FIRST_BY_RULE, GA_FIRST_REFUSED, GA_FIRST_WAITS };

struct ga_env {
    bool virtualize;            // GPUARB_VIRTUALIZE; true if not set
    bool in_job;                // true: GPUARB_JOB holds a token
    bool loss_closed;           // true: without a daemon refuse, until a daemon says otherwise
    bool loss_named_closed;     // true: GPUARB_ON_LOSS says closed, which no daemon can change
    uint32_t refuse_first;      // GPUARB_REFUSE_FIRST: enum ga_refuse_first
    uint64_t host;              // GPUARB_HOST in bytes; GA_NO_LIMIT: not set
    const char *malformed;      // name of the variable whose size cannot be parsed; NULL: none
    const char *malformed_kind; // kind of value that the variable should have
    char malformed_value[64];   // value of that variable, cut off after 63 bytes
    char socket[3][108]; // paths of the daemon's socket, in the order of the attempts; "": no more
    // Message that opens a session, with the token and the limits. memory, stream_reserve: bytes,
    // or GA_NO_LIMIT. share: GPUARB_MEMORY as a share, per mille. share, streams, slots, on_full,
    // slot_scope: they are 0 if not set.
    struct ga_wire_hello_request hello;
};

// Reads all variables. Called once in a process, and once in each forked child.
void ga_env_read(struct ga_env *env);

// Parses a size as people write it: 4G, 4GiB, 4096M, 123, 1.5G, max. False: not a size.
bool ga_env_size(const char *text, uint64_t *bytes);
// Parses a share as people write it: 25%, 12.5%. False: not a share of 0.1% to 100%.
bool ga_env_share(const char *text, uint32_t *per_mille);

#endif
