// SPDX-License-Identifier: Apache-2.0
// Wrappers for graphs (graph.h). graph_nodes.c reads which memory a graph has; memory/graph.c
// accounts for it.
#include "cuda/graph.h"

#include "cuda/capture.h"
#include "cuda/graph_nodes.h"
#include "cuda/stream_order.h"

// Reports whether a launch must be refused because there is no daemon and the configuration then
// refuses memory. If the program never made a graph with memory nodes, the launch is allowed.
static bool is_denied(const struct ga_root *known) {
    struct ga_root *root = atomic_load(&ga_root_pointer);
    return !known && root && ga_memory_graph_any(root) && ga_root_denies();
}

ga_result ga_cuda_graph_start(ga_result (*real)(ga_exec, ga_stream), bool launch,
                              ga_stream effective, ga_exec exec, ga_stream stream) {
    struct ga_root *root = ga_root_get();
    struct ga_memory_graph_start s;
    if (!root || !ga_memory_graph_any(root) || ga_cuda_capturing(effective) ||
        !ga_memory_graph_find(&s, root, exec))
        return is_denied(root) ? GA_CUDA_OUT_OF_MEMORY : real(exec, stream);
    struct ga_memory_at at = ga_cuda_stream_order_at(root, effective);
    ga_result result = GA_CUDA_OUT_OF_MEMORY;
    if (ga_memory_graph_open(&s, &at)) {
        result = real(exec, stream);
        ga_memory_graph_finish(&s, launch && result == GA_CUDA_SUCCESS);
    }
    ga_memory_graph_drop(&s);
    return result;
}

bool ga_cuda_graph_begin(struct ga_memory_graph_making *m, ga_graph graph) {
    struct ga_memory_graph_blocks blocks;
    *m = (struct ga_memory_graph_making){.root = ga_root_get()};
    if (!graph)
        return true;
    if (!m->root)
        return !ga_root_denies();
    return ga_cuda_graph_blocks_read(m->root, graph, &blocks) && ga_memory_graph_begin(m, &blocks);
}

ga_result ga_cuda_graph_made(struct ga_memory_graph_making *m, ga_result result,
                             const ga_exec *handle) {
    ga_memory_graph_made(m, result == GA_CUDA_SUCCESS && handle ? *handle : NULL);
    return result;
}

ga_result ga_cuda_graph_instantiate_with(GA_FN_cuGraphInstantiateWithParams *real, ga_exec *exec,
                                         ga_graph graph, struct ga_cu_instantiate *parameters) {
    struct ga_memory_graph_making m;
    if (!ga_cuda_graph_begin(&m, graph))
        return GA_CUDA_OUT_OF_MEMORY;
    struct ga_memory_graph_start s = {.root = m.root, .exec = m.exec};
    bool upload = m.exec && parameters && (parameters->flags & GA_CUDA_INSTANTIATE_UPLOAD) != 0;
    struct ga_memory_at at;
    if (upload)
        at = ga_cuda_stream_order_at(m.root, NULL);
    if (upload && !ga_memory_graph_open(&s, &at))
        return ga_cuda_graph_made(&m, GA_CUDA_OUT_OF_MEMORY, NULL);
    ga_result result = real(exec, graph, parameters);
    if (upload)
        ga_memory_graph_finish(&s, false);
    return ga_cuda_graph_made(&m, result, exec);
}

// Launches that have begun keep a reference to the record from before the update. If the new graph
// has no memory nodes, the executable graph's entry is removed.
ga_result ga_cuda_graph_updated(struct ga_memory_graph_making *m, ga_result result,
                                ga_exec handle) {
    if (m->exec || !m->root || result != GA_CUDA_SUCCESS)
        return ga_cuda_graph_made(m, result, &handle);
    ga_memory_graph_destroy_end(m->root, ga_memory_graph_destroy_begin(m->root, handle), handle,
                                true);
    return result;
}

ga_result ga_cuda_graph_exec_destroy(GA_FN_cuGraphExecDestroy *real, ga_exec exec) {
    struct ga_root *root = ga_root_get();
    if (!root)
        return real(exec);
    struct ga_memory_graph_exec *ends = ga_memory_graph_destroy_begin(root, exec);
    ga_result result = real(exec);
    ga_memory_graph_destroy_end(root, ends, exec, result == GA_CUDA_SUCCESS);
    return result;
}
