// SPDX-License-Identifier: Apache-2.0
// Memory of graphs. The driver chooses the address of an allocation node when the node is made, and
// gives it memory at a launch or an upload. So the bytes are acquired, or refused, at a launch or
// an upload. A block that the graph itself frees is pending until the stream has executed the
// launch. A block that the graph does not free is the program's after the launch, like any other
// block. All this memory comes from a pool of the driver (GA_MEMORY_POOL_OF_GRAPHS), which keeps it
// until it is trimmed.
//
// The interface reads the memory nodes of a graph, and calls the driver between the functions
// below. A spin lock (ga_memory_graphs.lock) guards the table and the reference counts.
#ifndef GA_MEMORY_GRAPH_H
#define GA_MEMORY_GRAPH_H

#include "memory/pool.h"

// An address that a graph allocates, or frees, or both.
struct ga_memory_graph_block {
    uint64_t address;
    uint64_t bytes;  // size of the largest allocation there; 0: the graph only frees the block
    uint32_t allocs; // number of nodes that allocate it
    uint32_t frees;  // number of nodes that free it
    uint32_t device; // number of the device; not set if bytes is 0
};

// The blocks of a graph, each address once.
struct ga_memory_graph_blocks {
    struct ga_memory_graph_block *block; // begin of a mapping; NULL: none
    uint32_t count;
    size_t size; // size of the mapping in bytes
};

// Unmaps the blocks.
void ga_memory_graph_blocks_drop(struct ga_memory_graph_blocks *blocks);

struct ga_memory_graph_exec;

// Graph that is being made executable. Its nodes are read before the driver's call, because the
// driver may upload the graph, and so allocate the memory, in that call.
struct ga_memory_graph_making {
    struct ga_root *root;
    struct ga_memory_graph_exec *exec; // NULL: the graph has no memory nodes
};
// Makes the record of a graph with these blocks, and owns the mapping of the blocks from then on.
// The caller has filled in m->root. False: no memory; the blocks are unmapped.
bool ga_memory_graph_begin(struct ga_memory_graph_making *m, struct ga_memory_graph_blocks *blocks);
// Stores the record under the handle that the driver made. handle NULL: the driver refused, and the
// record is dropped.
void ga_memory_graph_made(struct ga_memory_graph_making *m, void *handle);

// Must be called before and after the driver destroys an executable graph. The first removes its
// record from the table, because the driver may reuse the handle at once. It returns NULL if the
// graph has no memory nodes. The second inserts the record again if the driver refused (ended
// false). Launches that have not executed keep their blocks, and the pool keeps its memory.
struct ga_memory_graph_exec *ga_memory_graph_destroy_begin(struct ga_root *root, void *handle);
void ga_memory_graph_destroy_end(struct ga_root *root, struct ga_memory_graph_exec *exec,
                                 void *handle, bool ended);

// Launch or upload during the driver's call, and the bytes that it acquires on each device.
struct ga_memory_graph_start {
    struct ga_root *root;
    struct ga_memory_graph_exec *exec;
    struct ga_memory_acquisition acquisitions[GA_DEVICES]; // bytes 0: none on that device
    struct ga_memory_at at;
};
// Reports whether an executable graph with memory nodes was ever made.
bool ga_memory_graph_any(struct ga_root *root);
// Finds an executable graph, and adds a reference to its record. False: it has no memory nodes.
bool ga_memory_graph_find(struct ga_memory_graph_start *s, struct ga_root *root, void *handle);
// Drops the reference.
void ga_memory_graph_drop(struct ga_memory_graph_start *s);
// Acquires the bytes of a launch on a stream. False: refused; nothing is acquired. True: the caller
// must call ga_memory_graph_finish when the driver has answered.
bool ga_memory_graph_open(struct ga_memory_graph_start *s, const struct ga_memory_at *at);
// Finishes a launch or an upload. launched: the driver has launched the graph; false: it refused,
// or this was an upload. An upload leaves the memory in the pool for the coming launch, and nothing
// is live yet. So the acquired bytes are given back, and a reading charges the pool with its unused
// bytes.
void ga_memory_graph_finish(struct ga_memory_graph_start *s, bool launched);

#endif
