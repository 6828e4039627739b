// SPDX-License-Identifier: Apache-2.0
// What CUDA's side knows in a process. It lies behind the root, in the pages that a forked child
// finds zeroed, and what was said of the root holds for it: all zero means "nothing done yet".
#ifndef GA_CUDA_STATE_H
#define GA_CUDA_STATE_H

#include "core/root.h"

// The keys of root.blocks are addresses. What goes by a handle is marked in the highest bits, so
// that none is taken for another, whatever a driver makes its handles of.
#define GA_CUDA_KEY_ARRAY (1ull << 62)
#define GA_CUDA_KEY_MIPMAP (2ull << 62)
#define GA_CUDA_KEY_MEMORY (3ull << 62)

// What is known of a device's primary context: primary.c.
struct ga_primary {
    struct ga_mutex turn; // of a call that makes it or may end it
    // The thread that asks the daemon for it, and has the driver make it; the others wait for that.
    struct ga_mutex asking;
    _Atomic(struct ga_thread *) asker;
    _Atomic uint32_t asked;    // how many times
    _Atomic uint32_t refusals; // of these, how many were refused
    _Atomic uint32_t in_driver;
    struct ga_spin lock; // guards what follows
    uint32_t uses;       // retained, and not released since
    bool others;         // it was there before the first of these
};

// Contexts that end, and that ended lately: late.c.
#define GA_ENDINGS 16
#define GA_ENDED 64
struct ga_ending {
    uint64_t context; // 0: it has ended, and its handle is another one's by now
    uint64_t ticket;  // 0: none
};
struct ga_ended { // or it was not ended after all
    uint64_t context;
    uint64_t ticket;
    uint64_t epoch; // context_epoch from then on
    bool ended;
};
struct ga_late {
    struct ga_spin lock;
    uint32_t count; // of all that ended
    struct ga_ending ending[GA_ENDINGS];
    struct ga_ended ended[GA_ENDED];
};

// What a process used beyond its bytes at the last reading around a call: measure.c
struct ga_cuda_measured {
    _Atomic uint64_t at_ms; // 0: never
    _Atomic uint64_t beyond;
    _Atomic uint32_t contexts;
    _Atomic uint32_t imports; // root.imports_changed then
    struct ga_mutex turn;     // of a call that is measured
};

struct ga_cuda_state {
    // Read by each call, and written seldom.
    _Atomic uint64_t context_epoch;   // counts contexts that ended
    _Atomic uint32_t device_count;    // 0: not asked yet
    _Atomic uint32_t contexts_ending; // calls under way that may end one
    uint64_t pad[6];

    _Atomic uint8_t numbers[GA_DEVICES];     // + 1, by ordinal: device.c
    _Atomic uint8_t ordinals[GA_DEVICES];    // + 1, by number
    struct ga_table contexts;                // by handle
    struct ga_primary primaries[GA_DEVICES]; // by ordinal
    struct ga_late late;
    _Atomic uint32_t alignment[GA_DEVICES]; // memory.c: texture alignment + 1, or 0
    // A thread for a program that idles: idle.c
    _Atomic uint32_t idle_thread;   // enum ga_cuda_idle
    _Atomic uint32_t idle_sleeping; // until there is something pending
    _Atomic uint32_t idle_busy;     // it asks the driver
    struct ga_cuda_measured measured[GA_DEVICES];
    // Bytes that were charged for heaps which a driver may take only when a module needs them.
    _Atomic uint64_t ahead[GA_DEVICES];
    _Atomic uint64_t readings_since;
    _Atomic uint32_t readings;
    // Who holds it asks the driver about events and pools, none of which ends meanwhile.
    struct ga_mutex asking;
    // What is made when it is first needed, each by the file of its name (ga_root_part).
    void *_Atomic pools;
    void *_Atomic pending;
    void *_Atomic graphs;
    void *_Atomic vmm;
    void *_Atomic bounds;
};
_Static_assert(sizeof(struct ga_cuda_state) <= GA_ROOT_STATES, "what the root leaves room for");

extern size_t ga_cuda_place; // how far behind the root it lies

static inline struct ga_cuda_state *ga_cuda(struct ga_root *root) {
    return (struct ga_cuda_state *)(void *)((uint8_t *)root + ga_cuda_place);
}

#endif
