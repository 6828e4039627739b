// SPDX-License-Identifier: Apache-2.0
// The memory of graphs. The driver chooses the address of an allocation node when the node is made,
// and gives it memory when the graph is launched or uploaded. So the bytes are taken, or refused,
// at a launch or an upload. A block that the graph itself frees is pending until the stream has
// executed the launch. A block that the graph does not free is the program's after the launch, like
// any other block. All of it comes from a pool of the driver (GA_MEMORY_POOL_OF_GRAPHS), which
// keeps the memory until it is trimmed.
//
// The interface reads from the nodes of a graph what memory it has, and calls the
// driver between the functions below.
#ifndef GA_MEMORY_GRAPH_H
#define GA_MEMORY_GRAPH_H

#include "memory/pool.h"

// An address that a graph allocates, or frees, or both.
struct ga_memory_graph_block {
    uint64_t address;
    uint64_t bytes;  // of the largest allocation there; 0: the graph only frees the block
    uint32_t allocs; // number of nodes that allocate it
    uint32_t frees;  // number of nodes that free it
    uint32_t device; // number; not set if bytes is 0
};

// The blocks of a graph, each address once.
struct ga_memory_graph_blocks {
    struct ga_memory_graph_block *block; // the beginning of a mapping; NULL: none
    uint32_t count;
    size_t size; // of the mapping, in bytes
};

// Unmaps the blocks.
void ga_memory_graph_blocks_drop(struct ga_memory_graph_blocks *blocks);

struct ga_memory_graph_exec;

// A graph that is being made executable. Its nodes are read before the driver is asked, because the
// driver may upload the graph, and so take the memory, in the same call.
struct ga_memory_graph_making {
    struct ga_root *root;
    struct ga_memory_graph_exec *exec; // NULL: the graph has no memory nodes
};
// Makes the record of a graph with these blocks, and owns the mapping of the blocks from then on.
// The caller has filled in m->root. False: no memory; the blocks are unmapped.
bool ga_memory_graph_begin(struct ga_memory_graph_making *m, struct ga_memory_graph_blocks *blocks);
// Writes the record down under the handle that the driver made; handle NULL: the driver refused,
// and the record is dropped.
void ga_memory_graph_made(struct ga_memory_graph_making *m, void *handle);

// Must be called before and after the driver is asked to destroy an executable graph. The first
// takes its record out of the table, because the driver may give the handle to another graph at
// once; it returns NULL if the graph has no memory nodes. The second puts the record back if the
// driver refused (ended false). Launches that have not executed keep their blocks, and the pool
// keeps its memory.
struct ga_memory_graph_exec *ga_memory_graph_destroy_begin(struct ga_root *root, void *handle);
void ga_memory_graph_destroy_end(struct ga_root *root, struct ga_memory_graph_exec *exec,
                                 void *handle, bool ended);

// A launch or an upload for which the driver is being asked, and what it takes of each device.
struct ga_memory_graph_start {
    struct ga_root *root;
    struct ga_memory_graph_exec *exec;
    struct ga_memory_acquisition acquisitions[GA_DEVICES]; // bytes 0: nothing on that device
    struct ga_memory_at at;
};
// Reports whether an executable graph with memory nodes was ever made.
bool ga_memory_graph_any(struct ga_root *root);
// Finds an executable graph, and adds a reference to its record. False: it has no memory nodes.
bool ga_memory_graph_find(struct ga_memory_graph_start *s, struct ga_root *root, void *handle);
// Drops the reference.
void ga_memory_graph_drop(struct ga_memory_graph_start *s);
// Takes the bytes of a launch on a stream. False: refused, and nothing is taken. True: the caller
// must call ga_memory_graph_finish when the driver has answered.
bool ga_memory_graph_open(struct ga_memory_graph_start *s, const struct ga_memory_at *at);
// Settles a launch or an upload. launched: the driver has launched the graph; false: it refused, or
// this was an upload. An upload leaves the memory in the pool for the launch to come: nothing is
// live yet, so that the taken bytes are given back, and a reading charges the pool with what it
// keeps.
void ga_memory_graph_finish(struct ga_memory_graph_start *s, bool launched);

#endif
