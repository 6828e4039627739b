// SPDX-License-Identifier: Apache-2.0
//
// Shared by the files on graphs (graph*.c). Everything is under drv.lock.
#ifndef SIMCUDA_GRAPH_H
#define SIMCUDA_GRAPH_H

#include "driver.h"

enum node_kind { NODE_EMPTY, NODE_RUN, NODE_ALLOC, NODE_FREE, NODE_CHILD, NODE_CONDITION };

// Memory of a memory node: a fixed address, and bytes from a launch on.
struct graph_memory {
    CUdeviceptr p;
    uint64_t id; // number of the block
    unsigned refs;
    CUmemLocation at;
    uint64_t size;
    const struct graph *home; // never followed
    const struct exec *exec;  // executable graph that has it, or NULL; never dereferenced
    bool own;                 // the graph that allocates it also frees it
    bool freed_elsewhere;     // a node of another graph frees it
};

struct node {
    uintptr_t handle;
    enum node_kind kind;
    unsigned refs; // references of the graph and of its executable graphs
    struct graph *graph;
    op_fn fn;
    void *arg;
    size_t size;
    struct graph_memory *memory;
    struct graph *inner; // graph of a child node, or the body of a conditional node
    bool taken;          // conditional node: the body runs
};

struct edge {
    const struct node *from, *to;
};

// Position of a graph: free-standing, or inside a node.
enum place { FREE_STANDING, CLONED_CHILD, MOVED_CHILD, BODY };

struct graph {
    uintptr_t handle;
    struct node **nodes; // in an order that respects dependencies
    size_t count;
    struct edge *edges;
    size_t edge_count;
    bool captured; // partly captured; the dependencies of captured nodes are not kept
    enum place place;
};

// An executable graph: the nodes that do something, including those of inner graphs.
struct exec {
    uintptr_t handle;
    struct node **nodes;
    size_t count;
    char *shape; // an update needs a graph with an equal shape
    unsigned flags;
};

// CUDA_CHILD_GRAPH_NODE_PARAMS and CUDA_CONDITIONAL_NODE_PARAMS.
struct child_params {
    uintptr_t graph;
    int ownership;
};
struct condition_params {
    uint64_t handle;
    int type;
    unsigned size;
    uintptr_t *bodies;
    CUcontext ctx;
};

// Reports whether a graph or its inner graphs have a node of this kind.
bool graph_has(const struct graph *g, enum node_kind kind);
// Copies a graph with its nodes; NULL: no memory.
struct graph *graph_copy(const struct graph *g, enum place place);
CUresult graph_add(struct graph *g, struct node like, const void *arg, struct node **out);
CUresult graph_add_edges(struct graph *g, struct node *to, const uintptr_t *deps, size_t n);
CUresult graph_for(uintptr_t graph, const uintptr_t *deps, size_t n, struct graph **out);
// Reports whether an executable graph has memory nodes of the graph.
bool graph_is_executable(const struct graph *g);
void graph_drop_conditions(const struct graph *g);
// Nodes with a graph inside (graph_inner.c).
CUresult graph_add_child(struct graph *g, const struct child_params *params, struct node **out);
CUresult graph_add_condition(struct graph *g, struct condition_params *params, struct node **out);
void graph_node_unref(struct node *n);
void graph_unlink_node(struct node *n);

#endif
