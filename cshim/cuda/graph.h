// SPDX-License-Identifier: Apache-2.0
// The memory of graphs. An allocation node has its address from the beginning, and its memory from
// a launch (or an upload) on, which is when it is charged, or refused. What a graph frees itself is
// pending until the launch is done; what it leaves behind is a block like any other. All of it
// comes from a pool of the driver's, which keeps it until it is trimmed.
#ifndef GA_CUDA_GRAPH_H
#define GA_CUDA_GRAPH_H

#include "cuda/driver.h"

ga_result ga_cuda_graph_instantiate(GA_FN_cuGraphInstantiate_v2 *real, ga_exec *exec,
                                    ga_graph graph, ga_node *node, char *log, size_t size);
ga_result ga_cuda_graph_instantiate_flags(GA_FN_cuGraphInstantiateWithFlags *real, ga_exec *exec,
                                          ga_graph graph, uint64_t flags);
ga_result ga_cuda_graph_instantiate_with(GA_FN_cuGraphInstantiateWithParams *real, ga_exec *exec,
                                         ga_graph graph, struct ga_cu_instantiate *parameters);
// What is launched from then on has the memory of another graph.
ga_result ga_cuda_graph_update_v1(GA_FN_cuGraphExecUpdate *real, ga_exec exec, ga_graph graph,
                                  ga_node *node, int *update);
ga_result ga_cuda_graph_update(GA_FN_cuGraphExecUpdate_v2 *real, ga_exec exec, ga_graph graph,
                               void *update);
// effective is the stream that is meant, where stream is what the program passed.
ga_result ga_cuda_graph_upload(GA_FN_cuGraphUpload *real, ga_stream effective, ga_exec exec,
                               ga_stream stream);
ga_result ga_cuda_graph_launch(GA_FN_cuGraphLaunch *real, ga_stream effective, ga_exec exec,
                               ga_stream stream);
ga_result ga_cuda_graph_exec_destroy(GA_FN_cuGraphExecDestroy *real, ga_exec exec);

#endif
