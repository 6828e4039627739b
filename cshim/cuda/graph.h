// SPDX-License-Identifier: Apache-2.0
// Wrappers for the calls that make, launch and destroy graphs with memory nodes. Called by hooks.c.
// memory/graph.h accounts for the memory.
#ifndef GA_CUDA_GRAPH_H
#define GA_CUDA_GRAPH_H

#include "cuda/driver.h"
#include "memory/graph.h"

// Reads the memory nodes of a graph before the driver makes an executable graph of it, or updates
// one with it. False: refused, or no memory. True: after the driver's answer the caller must call
// ga_cuda_graph_made or ga_cuda_graph_updated.
bool ga_cuda_graph_begin(struct ga_memory_graph_making *m, ga_graph graph);
// Makes the record of the executable graph, if the driver made it. Returns result.
ga_result ga_cuda_graph_made(struct ga_memory_graph_making *m, ga_result result,
                             const ga_exec *handle);
// Does the work of ga_cuda_graph_made for an executable graph that the driver has updated. Later
// launches allocate the memory of the graph that m was begun with.
ga_result ga_cuda_graph_updated(struct ga_memory_graph_making *m, ga_result result, ga_exec handle);
ga_result ga_cuda_graph_instantiate_with(GA_FN_cuGraphInstantiateWithParams *real, ga_exec *exec,
                                         ga_graph graph, struct ga_cu_instantiate *parameters);
// Launches (launch true) or uploads an executable graph. stream: the program's argument. effective:
// the stream that the driver uses. Entry points *_ptsz replace stream 0 by the calling thread's
// default stream.
ga_result ga_cuda_graph_start(ga_result (*real)(ga_exec, ga_stream), bool launch,
                              ga_stream effective, ga_exec exec, ga_stream stream);
ga_result ga_cuda_graph_exec_destroy(GA_FN_cuGraphExecDestroy *real, ga_exec exec);

#endif
