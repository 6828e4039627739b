// SPDX-License-Identifier: Apache-2.0
// Reads from the nodes of a graph which addresses it allocates and frees.
#ifndef GA_CUDA_GRAPH_NODES_H
#define GA_CUDA_GRAPH_NODES_H

#include "cuda/driver.h"
#include "memory/graph.h"

// False: there is no memory for the blocks. If the graph has no memory nodes, count is 0 and there
// is no mapping.
bool ga_cuda_graph_blocks_read(struct ga_root *root, ga_graph graph,
                               struct ga_memory_graph_blocks *blocks);

#endif
