// SPDX-License-Identifier: Apache-2.0
// State of memory/ in a process, for all interfaces: pools, graphs, mapped memory, and the thread
// for idle programs. It lies behind the root, in pages that fork zeroes in the child, because the
// child has no GPU memory of its parent. The comments of the fields name the locks.
#ifndef GA_MEMORY_STATE_H
#define GA_MEMORY_STATE_H

#include "core/records.h"
#include "memory/driver.h"

// Key space in root.blocks of memory that a handle stands for (mapped.c). The number of a key is
// the address of a struct ga_memory_mapped. core/table.h explains key spaces.
enum { GA_SPACE_MEMORY = 1, GA_SPACES_MEMORY_END };

// Measurements of the granule of a device. Drivers enlarge a pool by a whole number of granules,
// and do not report the size of a granule. granule_of in pool.c computes it from both fields.
struct ga_memory_granule {
    uint64_t readings; // bitwise or of all reserved sizes that were read, in bytes
    // smallest granule that explains all growth seen, in bytes; 0: none was seen
    uint64_t more_than;
};

// Pools of stream-ordered memory, and stream-ordered frees: pool.c, pending.c
struct ga_memory_pools {
    struct ga_table
        blocks; // blocks by address; an entry's context points to its struct ga_memory_pool
    struct ga_memory_pool *first;  // records are added and used again, but never removed
    struct ga_memory_frees *freed; // records are added and used again, but never removed
    uint64_t frees;                // number of times that bytes were added to a record of freed
    // Number of driver calls that began so far and may change which pool a device allocates from.
    _Atomic uint64_t changes;
    struct {           // the pool that each device allocates from, as the driver said last
        uint64_t turn; // ga_memory_pool_turn before the driver was asked; 0: not known
        struct ga_memory_pool *pool;
    } current[GA_DEVICES];
    struct ga_memory_granule granule[GA_DEVICES];
    struct ga_spin lock;       // guards both lists and their records, current and granule
    _Atomic uint32_t in_use;   // 1: a list has, or had, a record; it never goes back to 0
    _Atomic uint32_t changing; // number of the calls in changes that have not returned
};

// Executable graphs: graph.c
struct ga_memory_graphs {
    struct ga_table
        execs; // graphs by handle; an entry's context points to a struct ga_memory_graph_exec
    struct ga_spin lock;      // guards execs, and the reference counts of the graphs in it
    struct ga_records unused; // records of struct ga_memory_graph_exec
};

// Memory that a handle stands for until it is mapped at addresses: mapped.c. In both tables the
// context of an entry is a pointer to a struct ga_memory_mapped.
struct ga_memory_mappings {
    struct ga_table
        handles; // memory by handle; an entry's bytes: number of references to the handle
    struct ga_table
        mapped; // memory by address; an entry's context is 0 if memory/ does not know the memory
    struct ga_spin lock;      // guards handles, and the records that both tables point to
    struct ga_records unused; // records of struct ga_memory_mapped
};

struct ga_memory_state {
    // The library's own thread, which gives memory back while the program idles: idle.c
    _Atomic uint32_t idle_thread;   // enum ga_memory_idle
    _Atomic uint32_t idle_sleeping; // 1: it sleeps until bytes are pending
    _Atomic uint32_t idle_busy;     // 1: it calls the driver
    // A thread holds this mutex while it asks the driver about streams, or makes it trim pools. A
    // thread locks the mutex once before the driver ends a stream or begins a capture. Questions
    // that had begun are answered then, and later questions leave that stream out. Every wait for
    // the mutex is bounded, because its holder waits for the driver. A thread whose wait has timed
    // out continues without the mutex.
    struct ga_mutex asking;
    struct ga_memory_pools pools;
    struct ga_memory_graphs graphs;
    struct ga_memory_mappings mappings;
};

#define GA_MEMORY_STATE ((size_t)32 << 10) // offset of this state behind the root (ga_root_state)
static inline struct ga_memory_state *ga_memory_of(struct ga_root *root) {
    return ga_root_state(root, GA_MEMORY_STATE);
}

#endif
