// SPDX-License-Identifier: Apache-2.0
// The calls by which the program makes, launches and ends graphs with memory (memory/graph.h).
#ifndef GA_CUDA_GRAPH_H
#define GA_CUDA_GRAPH_H

#include "cuda/driver.h"
#include "memory/graph.h"

// False: refused, or no memory. True: one of the other two follows when the driver has answered.
bool ga_cuda_graph_begin(struct ga_memory_graph_making *m, ga_graph graph);
ga_result ga_cuda_graph_made(struct ga_memory_graph_making *m, ga_result result,
                             const ga_exec *handle);
// As ga_cuda_graph_made, of an executable graph that was updated: launches from now on take the
// memory of the graph that m was begun with.
ga_result ga_cuda_graph_updated(struct ga_memory_graph_making *m, ga_result result, ga_exec handle);
ga_result ga_cuda_graph_instantiate_with(GA_FN_cuGraphInstantiateWithParams *real, ga_exec *exec,
                                         ga_graph graph, struct ga_cu_instantiate *parameters);
// launch, or upload. effective is the stream that is meant, where stream is what the program
// passed.
ga_result ga_cuda_graph_start(ga_result (*real)(ga_exec, ga_stream), bool launch,
                              ga_stream effective, ga_exec exec, ga_stream stream);
ga_result ga_cuda_graph_exec_destroy(GA_FN_cuGraphExecDestroy *real, ga_exec exec);

#endif
