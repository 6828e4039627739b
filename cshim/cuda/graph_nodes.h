// SPDX-License-Identifier: Apache-2.0
// What a graph does with memory, read from its nodes.
#ifndef GA_CUDA_GRAPH_NODES_H
#define GA_CUDA_GRAPH_NODES_H

#include "cuda/driver.h"
#include "memory/graph.h"

// False: no memory for it. A graph without such nodes has count 0 and no mapping.
bool ga_cuda_graph_blocks_read(struct ga_root *root, ga_graph graph,
                               struct ga_memory_graph_blocks *blocks);

#endif
