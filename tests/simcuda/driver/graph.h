// SPDX-License-Identifier: Apache-2.0
//
// What the files about graphs share. All of it is under drv.lock.
#ifndef SIMCUDA_GRAPH_H
#define SIMCUDA_GRAPH_H

#include "driver.h"

enum node_kind { NODE_EMPTY, NODE_RUN, NODE_ALLOC, NODE_FREE, NODE_CHILD, NODE_CONDITION };

// Memory that a node allocates: an address for good, and bytes from a launch on.
struct graph_memory {
    CUdeviceptr p;
    uint64_t id; // of the block
    unsigned refs;
    CUmemLocation at;
    uint64_t size;
    const struct graph *home; // never followed
    const struct exec *exec;  // that it was made executable in, or NULL; never followed
    bool own;                 // freed by the graph that allocates it
    bool freed_elsewhere;     // by a node of another graph
};

struct node {
    uintptr_t handle;
    enum node_kind kind;
    unsigned refs; // of the graph and of what was made from it
    struct graph *graph;
    op_fn fn;
    void *arg;
    size_t size;
    struct graph_memory *memory;
    struct graph *inner; // of a child node, or the body of a conditional one
    bool taken;          // a conditional one: the body runs
};

struct edge {
    const struct node *from, *to;
};

// Whose a graph is that lies inside a node.
enum place { FREE_STANDING, CLONED_CHILD, MOVED_CHILD, BODY };

struct graph {
    uintptr_t handle;
    struct node **nodes; // in an order that respects what depends on what
    size_t count;
    struct edge *edges;
    size_t edge_count;
    bool captured; // in part; what depends on what there is not kept
    enum place place;
};

// What can be launched: the nodes that do something, those of inner graphs among them.
struct exec {
    uintptr_t handle;
    struct node **nodes;
    size_t count;
    char *shape; // an update must be of a graph of the same
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

// Any of a graph's nodes, or of the graphs inside it.
bool graph_has(const struct graph *g, enum node_kind kind);
// A copy with nodes of its own; NULL: no memory.
struct graph *graph_copy(const struct graph *g, enum place place);
CUresult graph_add(struct graph *g, struct node like, const void *arg, struct node **out);
CUresult graph_add_edges(struct graph *g, struct node *to, const uintptr_t *deps, size_t n);
CUresult graph_for(uintptr_t graph, const uintptr_t *deps, size_t n, struct graph **out);
// Whether memory of it is some executable graph's.
bool graph_is_executable(const struct graph *g);
void graph_drop_conditions(const struct graph *g);
// Nodes with a graph inside (graph_inner.c).
CUresult graph_add_child(struct graph *g, const struct child_params *params, struct node **out);
CUresult graph_add_condition(struct graph *g, struct condition_params *params, struct node **out);
void graph_node_unref(struct node *n);
void graph_unlink_node(struct node *n);

#endif
