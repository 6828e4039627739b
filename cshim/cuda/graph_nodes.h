// SPDX-License-Identifier: Apache-2.0
// What a graph does with memory, read from its nodes.
#ifndef GA_CUDA_GRAPH_NODES_H
#define GA_CUDA_GRAPH_NODES_H

#include "core/root.h"
#include "cuda/driver.h"

// An address that the graph allocates, or frees, or both.
struct ga_cuda_graph_block {
    uint64_t address;
    uint64_t bytes;  // of the largest allocation there; 0: somebody else's block
    uint32_t allocs; // nodes
    uint32_t frees;
    uint32_t device;
};

// As many as count, each address once, in a mapping of its own.
struct ga_cuda_graph_blocks {
    struct ga_cuda_graph_block *block;
    uint32_t count;
    size_t size; // of the mapping
};

// False: no memory for it. A graph without such nodes has count 0 and no mapping.
bool ga_cuda_graph_blocks_read(struct ga_root *root, ga_graph graph,
                               struct ga_cuda_graph_blocks *blocks);
void ga_cuda_graph_blocks_drop(struct ga_cuda_graph_blocks *blocks);

#endif
