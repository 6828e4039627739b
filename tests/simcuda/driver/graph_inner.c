// SPDX-License-Identifier: Apache-2.0
//
// Inner graphs, and changes of graphs. A child graph is copied into its node, or moved there; a
// graph with memory nodes must be moved. The body of a conditional node is made with the node.
// Because there are no kernels, a condition always has its default value.

#include "graph.h"

#include <stdlib.h>
#include <string.h>

enum { OWNERSHIP_CLONE, OWNERSHIP_MOVE };

struct condition {
    uintptr_t handle;
    const struct graph *graph;
    unsigned value;
    bool used; // its node exists
    struct condition *next;
};

static struct condition *conditions; // under drv.lock

bool graph_has(const struct graph *g, enum node_kind kind) {
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i]->kind == kind ||
            (g->nodes[i]->inner && graph_has(g->nodes[i]->inner, kind)))
            return true;
    return false;
}

static bool has_memory(const struct graph *g) {
    return graph_has(g, NODE_ALLOC) || graph_has(g, NODE_FREE);
}

static struct node *node_at(const struct graph *g, size_t i) {
    return i < g->count ? g->nodes[i] : NULL;
}

static size_t place_of(const struct graph *g, const struct node *n) {
    size_t i = 0;
    while (node_at(g, i) && node_at(g, i) != n)
        i++;
    return i;
}

static bool copy_edges(const struct graph *from, struct graph *to) {
    if (from->edge_count == 0)
        return true;
    to->edges = calloc(from->edge_count, sizeof *to->edges);
    for (size_t i = 0; to->edges && i < from->edge_count; i++)
        to->edges[to->edge_count++] = (struct edge){to->nodes[place_of(from, from->edges[i].from)],
                                                    to->nodes[place_of(from, from->edges[i].to)]};
    return to->edges != NULL;
}

struct graph *graph_copy(const struct graph *g, enum place place) {
    struct graph *copy = graph_new();
    if (!copy)
        return NULL;
    copy->captured = g->captured;
    copy->place = place;
    for (size_t i = 0; i < g->count; i++) {
        const struct node *n = g->nodes[i];
        struct node like = {.kind = n->kind, .fn = n->fn, .size = n->size};
        if (n->inner && !(like.inner = graph_copy(n->inner, n->inner->place)))
            break;
        if (graph_add(copy, like, n->arg, NULL)) {
            if (like.inner)
                graph_drop(like.inner);
            break;
        }
    }
    if (copy->count == g->count && copy_edges(g, copy))
        return copy;
    graph_drop(copy);
    return NULL;
}

// Reports whether g lies inside outer. A graph cannot be put into itself.
static bool lies_in(const struct graph *g, const struct graph *outer) {
    for (size_t i = 0; i < outer->count; i++) {
        const struct graph *inner = outer->nodes[i]->inner;
        if (inner && (inner == g || lies_in(g, inner)))
            return true;
    }
    return outer == g;
}

CUresult graph_add_child(struct graph *g, const struct child_params *params, struct node **out) {
    struct graph *child = handle_get(HANDLE_GRAPH, params->graph);
    bool move = params->ownership == OWNERSHIP_MOVE;
    if (!child || lies_in(g, child) || (unsigned)params->ownership > OWNERSHIP_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    // The error codes of these cases are not documented.
    if (child->place != FREE_STANDING || graph_has(child, NODE_CONDITION) ||
        (has_memory(child) && (!move || g->place != FREE_STANDING)))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (move && graph_is_executable(child))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct graph *inner = move ? child : graph_copy(child, CLONED_CHILD);
    if (!inner)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = graph_add(g, (struct node){.kind = NODE_CHILD, .inner = inner}, NULL, out);
    if (!rc)
        inner->place = move ? MOVED_CHILD : CLONED_CHILD;
    else if (!move)
        graph_drop(inner);
    return rc;
}

EXPORT CUresult cuGraphClone(uintptr_t *out, uintptr_t original) {
    ENTER();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    const struct graph *g = handle_get(HANDLE_GRAPH, original);
    CUresult rc = g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (g && (has_memory(g) || graph_has(g, NODE_CONDITION)))
        rc = CUDA_ERROR_NOT_SUPPORTED; // the refusal is documented, the error code is not
    struct graph *copy = rc ? NULL : graph_copy(g, FREE_STANDING);
    if (copy)
        *out = copy->handle;
    pthread_mutex_unlock(&drv.lock);
    return rc ? rc : copy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Conditional nodes

void graph_drop_conditions(const struct graph *g) {
    for (struct condition **at = &conditions; *at;) {
        struct condition *c = *at;
        if (c->graph != g) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        handle_drop(HANDLE_CONDITION, c->handle);
        free(c);
    }
}

EXPORT CUresult cuGraphConditionalHandleCreate(uint64_t *out, uintptr_t graph, CUcontext context,
                                               unsigned value, unsigned flags) {
    enum { ASSIGN_DEFAULT = 1 };
    ENTER();
    if (!out || (flags & ~(unsigned)ASSIGN_DEFAULT))
        return CUDA_ERROR_INVALID_VALUE;
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&drv.lock);
    const struct graph *g = handle_get(HANDLE_GRAPH, graph);
    bool known = g && ctx_by_handle(context);
    struct condition *c = known ? calloc(1, sizeof *c) : NULL;
    if (c) {
        *c = (struct condition){
            .graph = g, .value = flags & ASSIGN_DEFAULT ? value : 0, .next = conditions};
        conditions = c;
        *out = c->handle = handle_new(HANDLE_CONDITION, c);
    }
    pthread_mutex_unlock(&drv.lock);
    return c ? CUDA_SUCCESS : known ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

// The driver owns the list of bodies, which exists as long as the node.
CUresult graph_add_condition(struct graph *g, struct condition_params *params, struct node **out) {
    enum { IF };
    struct condition *c = handle_get(HANDLE_CONDITION, (uintptr_t)params->handle);
    if (!c || c->used || c->graph != g || !params->size)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->type != IF || params->size != 1)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct graph *body = graph_new();
    if (!body)
        return CUDA_ERROR_OUT_OF_MEMORY;
    body->place = BODY;
    struct node like = {.kind = NODE_CONDITION, .inner = body, .taken = c->value != 0};
    like.size = sizeof body->handle;
    CUresult rc = graph_add(g, like, &body->handle, out);
    if (rc) {
        graph_drop(body);
        return rc;
    }
    c->used = true;
    params->bodies = (*out)->arg;
    return CUDA_SUCCESS;
}

// Changes. Nothing can be removed from a graph with memory nodes: that is documented, the error
// code is not.

EXPORT CUresult cuGraphDestroyNode(uintptr_t handle) {
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct node *n = handle_get(HANDLE_NODE, handle);
    CUresult rc = !n                     ? CUDA_ERROR_INVALID_VALUE
                  : has_memory(n->graph) ? CUDA_ERROR_NOT_SUPPORTED
                                         : CUDA_SUCCESS;
    if (!rc)
        graph_unlink_node(n);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}
