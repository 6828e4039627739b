// SPDX-License-Identifier: Apache-2.0
// Reads from the nodes of a graph which addresses the graph allocates and frees. Called by graph.c.
#ifndef GA_CUDA_GRAPH_NODES_H
#define GA_CUDA_GRAPH_NODES_H

#include "cuda/driver.h"
#include "memory/graph.h"

// Reads the blocks of a graph. If the graph has no memory nodes, blocks->count is 0 and nothing is
// mapped. False: there is no memory for the blocks.
bool ga_cuda_graph_blocks_read(struct ga_root *root, ga_graph graph,
                               struct ga_memory_graph_blocks *blocks);

#endif
