// SPDX-License-Identifier: Apache-2.0
// The state of what interfaces share in a process: pools, graphs, mapped memory. It lies behind the
// root, in the pages that a forked child finds zeroed.
#ifndef GA_MEMORY_STATE_H
#define GA_MEMORY_STATE_H

#include "core/records.h"
#include "memory/driver.h"

// The space of keys (core/table.h) of memory that is mapped, by the address of its record: mapped.c
enum { GA_SPACE_MEMORY = 1, GA_SPACES_MEMORY_END };

// How the driver makes the pools of a device larger: pool.c
struct ga_memory_granule {
    uint64_t readings;  // all sizes that pools were seen to have, by bitwise or
    uint64_t more_than; // the granule is not smaller; 0: no rounding was seen
};

// Pools of stream-ordered memory, and what was freed there in stream order: pool.c, pending.c
struct ga_memory_pools {
    struct ga_table blocks; // by address; an entry's context points to its struct ga_memory_pool
    struct ga_memory_pool *first;  // nothing leaves this list
    struct ga_memory_frees *freed; // nor this one
    uint64_t frees;                // counts what was added to the latter
    _Atomic uint64_t changes;      // of which pool a device takes from, begun so far
    struct {
        uint64_t turn; // ga_memory_pool_turn when the driver was asked
        struct ga_memory_pool *pool;
    } current[GA_DEVICES];
    struct ga_memory_granule granule[GA_DEVICES];
    struct ga_spin lock;       // guards the lists, and what is in them
    _Atomic uint32_t in_use;   // 1: there was something in the lists
    _Atomic uint32_t changing; // of the changes, how many are with the driver
};

// Executable graphs: graph.c
struct ga_memory_graphs {
    struct ga_table execs; // by handle; an entry's context points to a struct ga_memory_graph_exec
    struct ga_spin lock;   // guards it, and the counts
    struct ga_records unused;
};

// Memory without an address: mapped.c. In the tables the context of an entry is a pointer to
// memory.
struct ga_memory_mappings {
    struct ga_table handles; // bytes: references by the handle
    struct ga_table mapped;  // by address
    struct ga_spin lock;     // guards the handles, and what the tables point to
    struct ga_records unused;
};

struct ga_memory_state {
    // A thread for a program that idles: idle.c
    _Atomic uint32_t idle_thread;   // enum ga_memory_idle
    _Atomic uint32_t idle_sleeping; // until there is something pending
    _Atomic uint32_t idle_busy;     // it asks the driver
    // The thread that holds this mutex asks the driver about streams and pools. No stream and no
    // pool ends meanwhile.
    struct ga_mutex asking;
    struct ga_memory_pools pools;
    struct ga_memory_graphs graphs;
    struct ga_memory_mappings mappings;
};

#define GA_MEMORY_STATE ((size_t)32 << 10) // its place: ga_root_state
static inline struct ga_memory_state *ga_memory_of(struct ga_root *root) {
    return ga_root_state(root, GA_MEMORY_STATE);
}

#endif
