// SPDX-License-Identifier: Apache-2.0
// The memory of graphs. An allocation node has its address from the beginning, and its memory from
// a launch (or an upload) on, which is when it is charged, or refused. What a graph frees itself is
// pending until the launch is done; what it leaves behind is a block like any other. All of it
// comes from a pool of the driver's, which keeps it until it is trimmed.
//
// The interface reads what memory a graph has from its nodes, and calls the driver between the
// functions below.
#ifndef GA_MEMORY_GRAPH_H
#define GA_MEMORY_GRAPH_H

#include "memory/pool.h"

// An address that the graph allocates, or frees, or both.
struct ga_memory_graph_block {
    uint64_t address;
    uint64_t bytes;  // of the largest allocation there; 0: somebody else's block
    uint32_t allocs; // nodes
    uint32_t frees;
    uint32_t device;
};

// As many as count, each address once, in a mapping of its own.
struct ga_memory_graph_blocks {
    struct ga_memory_graph_block *block;
    uint32_t count;
    size_t size; // of the mapping
};

void ga_memory_graph_blocks_drop(struct ga_memory_graph_blocks *blocks);

struct ga_memory_graph_exec;

// A graph that is being made executable. Its memory nodes are read before the driver is asked,
// because the driver may upload it, which takes their memory, in the same call.
struct ga_memory_graph_making {
    struct ga_root *root;
    struct ga_memory_graph_exec *exec; // NULL: nothing to remember
};
// Begins to make a graph with memory in these blocks executable, and takes the blocks over. The
// caller has filled in root. False: no memory.
bool ga_memory_graph_begin(struct ga_memory_graph_making *m, struct ga_memory_graph_blocks *blocks);
// The driver has made it. handle NULL: it has not.
void ga_memory_graph_made(struct ga_memory_graph_making *m, void *handle);

// Are called before and after the driver is asked to destroy an executable graph: the first takes
// it out of the table, because the driver may give the handle out again. What its launches hold
// they hold on; what the pool keeps it keeps until it is trimmed. NULL: it has no memory.
struct ga_memory_graph_exec *ga_memory_graph_ends(struct ga_root *root, void *handle);
void ga_memory_graph_ended(struct ga_root *root, struct ga_memory_graph_exec *exec, void *handle,
                           bool ended);

// A launch, or an upload, under way: what the devices' pools of graph memory must have for it.
struct ga_memory_graph_start {
    struct ga_root *root;
    struct ga_memory_graph_exec *exec;
    struct ga_memory_take take[GA_DEVICES]; // bytes 0: nothing there
    struct ga_memory_at at;
};
// Whether any executable graph has memory.
bool ga_memory_graph_any(struct ga_root *root);
// Finds an executable graph, and refers to it until ga_memory_graph_leave. False: it has no memory.
bool ga_memory_graph_find(struct ga_memory_graph_start *s, struct ga_root *root, void *handle);
void ga_memory_graph_leave(struct ga_memory_graph_start *s);
// Takes the bytes of a launch on a stream. False: refused, and nothing is taken. True: settle
// follows when the driver has answered.
bool ga_memory_graph_open(struct ga_memory_graph_start *s, const struct ga_memory_at *at);
// launched: the driver has launched the graph. An upload leaves the memory in the pool, ready for
// the launch, and so it is not launched: none of it is live yet, what was taken is given back, and
// a reading charges it as kept.
void ga_memory_graph_settle(struct ga_memory_graph_start *s, bool launched);

#endif
