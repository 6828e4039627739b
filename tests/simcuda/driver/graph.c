// SPDX-License-Identifier: Apache-2.0
//
// Graphs: operations that were captured or added, and are executed in every launch. A memory node
// has a fixed address. It has memory from a launch until the block is freed. Then the device's
// graph pool keeps the memory until it is trimmed.

#include "graph.h"

#include <stdlib.h>
#include <string.h>

struct late_free {
    CUdeviceptr p;
    uint64_t id;
};

static void memory_unref(struct graph_memory *m) {
    if (!m || --m->refs)
        return;
    struct block *b = block_exact(m->p);
    if (b && b->id == m->id) {
        b->graph = NULL; // stays until it is freed
        if (b->without_memory)
            block_drop(b);
    }
    free(m);
}

void graph_node_unref(struct node *n) {
    if (--n->refs)
        return;
    memory_unref(n->memory);
    free(n->arg);
    free(n);
}

struct graph *graph_new(void) {
    struct graph *g = calloc(1, sizeof *g);
    if (g)
        g->handle = handle_new(HANDLE_GRAPH, g);
    return g;
}

uintptr_t graph_handle(const struct graph *g) {
    return g->handle;
}

// Removes a node from a graph. Executable graphs keep the nodes that they launch.
static void drop_node(struct node *n) {
    handle_drop(HANDLE_NODE, n->handle);
    if (n->inner)
        graph_drop(n->inner);
    n->inner = NULL;
    graph_node_unref(n);
}

void graph_drop(struct graph *g) {
    for (size_t i = 0; i < g->count; i++)
        drop_node(g->nodes[i]);
    graph_drop_conditions(g);
    handle_drop(HANDLE_GRAPH, g->handle);
    free(g->nodes);
    free(g->edges);
    free(g);
}

void graph_unlink_node(struct node *n) {
    struct graph *g = n->graph;
    size_t kept = 0;
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i] != n)
            g->nodes[kept++] = g->nodes[i];
    g->count = kept;
    kept = 0;
    for (size_t i = 0; i < g->edge_count; i++)
        if (g->edges[i].from != n && g->edges[i].to != n)
            g->edges[kept++] = g->edges[i];
    g->edge_count = kept;
    drop_node(n);
}

CUresult graph_add(struct graph *g, struct node like, const void *arg, struct node **out) {
    struct node **more = realloc(g->nodes, (g->count + 1) * sizeof *more);
    if (more)
        g->nodes = more;
    struct node *n = malloc(sizeof *n);
    void *copy = like.size ? malloc(like.size) : NULL;
    if (!more || !n || (like.size && !copy)) {
        free(n);
        free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (copy)
        memcpy(copy, arg, like.size);
    *n = like;
    n->arg = copy;
    n->refs = 1;
    n->graph = g;
    n->handle = handle_new(HANDLE_NODE, n);
    g->nodes[g->count++] = n;
    if (out)
        *out = n;
    return CUDA_SUCCESS;
}

CUresult graph_add_run(struct graph *g, op_fn fn, const void *arg, size_t size) {
    g->captured = true;
    return graph_add(g, (struct node){.kind = NODE_RUN, .fn = fn, .size = size}, arg, NULL);
}

// Reports whether memory nodes may be added. A graph that was moved into another graph takes none.
// The body of a conditional node takes none either: that is documented, the error code is not.
static bool takes_memory(const struct graph *g) {
    return g->place == FREE_STANDING;
}

static CUresult add_alloc(struct graph *g, const CUmemLocation *at, uint64_t size, CUdeviceptr *out,
                          struct node **node) {
    int phys = drv.phys[dev_at(at)];
    if (!size || !takes_memory(g))
        return CUDA_ERROR_INVALID_VALUE;
    if (size > sim_capacity(drv.sim, phys))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct graph_memory *m = calloc(1, sizeof *m);
    struct block *b = m ? block_new(size) : NULL;
    if (!b) {
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    b->phys = phys;
    b->kind = BLOCK_ASYNC;
    b->without_memory = true;
    b->graph = m;
    *m = (struct graph_memory){
        .p = b->base, .id = b->id, .refs = 1, .at = *at, .size = size, .home = g};
    CUresult rc = graph_add(g, (struct node){.kind = NODE_ALLOC, .memory = m}, NULL, node);
    if (rc)
        memory_unref(m);
    else
        *out = m->p;
    return rc;
}

CUresult graph_add_alloc(struct graph *g, CUdevice dev, uint64_t size, CUdeviceptr *out) {
    g->captured = true;
    return add_alloc(g, &(CUmemLocation){LOCATION_DEVICE, dev}, size, out, NULL);
}

// Frees a block that the graph itself frees, when the last launch has done so.
static void run_free(void *arg) {
    struct late_free *f = arg;
    pthread_mutex_lock(&drv.lock);
    struct block *b = block_exact(f->p);
    if (b && b->id == f->id && !b->without_memory && (b->launches == 0 || --b->launches == 0))
        mem_free_locked(b);
    pthread_mutex_unlock(&drv.lock);
}

// Adds a free node. The graph that allocates a block may free it once; other graphs may free it as
// well.
static CUresult add_free(struct graph *g, CUdeviceptr p, struct node **node) {
    struct block *b = block_exact(p);
    if (!b || !b->graph || !takes_memory(g))
        return CUDA_ERROR_INVALID_VALUE; // a graph can free only memory of graphs
    struct graph_memory *m = b->graph;
    bool home = m->home == g;
    if (m->own || (home && m->freed_elsewhere))
        return CUDA_ERROR_INVALID_VALUE;
    struct late_free f = {p, b->id};
    struct node like = {.kind = NODE_FREE, .fn = run_free, .size = sizeof f};
    CUresult rc = graph_add(g, like, &f, node);
    if (!rc)
        *(home ? &m->own : &m->freed_elsewhere) = true;
    return rc;
}

CUresult graph_add_free(struct graph *g, CUdeviceptr p) {
    g->captured = true;
    return add_free(g, p, NULL);
}

void graph_block_freed(struct block *b) {
    b->pool = NULL;
    b->without_memory = true;
    b->freeing = false;
}

EXPORT CUresult cuGraphCreate(uintptr_t *out, unsigned flags) {
    ENTER();
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct graph *g = graph_new();
    if (g)
        *out = g->handle;
    pthread_mutex_unlock(&drv.lock);
    return g ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// A graph inside a node ends with the node.
EXPORT CUresult cuGraphDestroy(uintptr_t graph) {
    ENTER();
    pthread_mutex_lock(&drv.lock);
    struct graph *g = handle_get(HANDLE_GRAPH, graph);
    bool own = g && g->place == FREE_STANDING;
    if (own)
        graph_drop(g);
    pthread_mutex_unlock(&drv.lock);
    return own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphGetNodes(uintptr_t graph, uintptr_t *nodes, size_t *count) {
    ENTER();
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    struct graph *g = handle_get(HANDLE_GRAPH, graph);
    for (size_t i = 0; g && nodes && i < *count; i++)
        nodes[i] = i < g->count ? g->nodes[i]->handle : 0;
    if (g && (!nodes || *count > g->count))
        *count = g->count;
    pthread_mutex_unlock(&drv.lock);
    return g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Finds a graph and checks dependencies. A dependency was added before the node, so the order of
// addition is a valid order.
CUresult graph_for(uintptr_t graph, const uintptr_t *deps, size_t n, struct graph **out) {
    *out = handle_get(HANDLE_GRAPH, graph);
    if (!*out || (n && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        const struct node *d = handle_get(HANDLE_NODE, deps[i]);
        if (!d || d->graph != *out)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult graph_add_edges(struct graph *g, struct node *to, const uintptr_t *deps, size_t n) {
    struct edge *more = n ? realloc(g->edges, (g->edge_count + n) * sizeof *more) : g->edges;
    if (n && !more)
        return CUDA_ERROR_OUT_OF_MEMORY;
    g->edges = more;
    for (size_t i = 0; i < n; i++)
        g->edges[g->edge_count++] = (struct edge){handle_get(HANDLE_NODE, deps[i]), to};
    return CUDA_SUCCESS;
}

// Finishes the addition of a node.
static CUresult finish(CUresult rc, struct node *node, const uintptr_t *deps, size_t n,
                       uintptr_t *out) {
    if (!rc && (rc = graph_add_edges(node->graph, node, deps, n)))
        graph_unlink_node(node);
    if (!rc)
        *out = node->handle;
    return rc;
}

EXPORT CUresult cuGraphAddEmptyNode(uintptr_t *out, uintptr_t graph, const uintptr_t *deps,
                                    size_t n) {
    ENTER();
    struct graph *g;
    struct node *node = NULL;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = graph_for(graph, deps, n, &g);
    if (!rc)
        rc = graph_add(g, (struct node){.kind = NODE_EMPTY}, NULL, &node);
    rc = finish(rc, node, deps, n, out);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static CUresult add_alloc_node(uintptr_t *out, uintptr_t graph, const uintptr_t *deps, size_t n,
                               CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    struct graph *g;
    struct node *node = NULL;
    if (!out || !params || dev_at(&params->poolProps.location) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = graph_for(graph, deps, n, &g);
    if (!rc)
        rc = add_alloc(g, &params->poolProps.location, params->bytesize, &params->dptr, &node);
    rc = finish(rc, node, deps, n, out);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuGraphAddMemAllocNode(uintptr_t *out, uintptr_t graph, const uintptr_t *deps,
                                       size_t n, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    ENTER();
    return add_alloc_node(out, graph, deps, n, params);
}

static CUresult add_free_node(uintptr_t *out, uintptr_t graph, const uintptr_t *deps, size_t n,
                              CUdeviceptr p) {
    struct graph *g;
    struct node *node = NULL;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = graph_for(graph, deps, n, &g);
    if (!rc)
        rc = add_free(g, p, &node);
    rc = finish(rc, node, deps, n, out);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuGraphAddMemFreeNode(uintptr_t *out, uintptr_t graph, const uintptr_t *deps,
                                      size_t n, CUdeviceptr p) {
    ENTER();
    return add_free_node(out, graph, deps, n, p);
}

enum node_type {
    TYPE_HOST = 3,
    TYPE_CHILD,
    TYPE_EMPTY,
    TYPE_ALLOC = 10,
    TYPE_FREE,
    TYPE_CONDITION = 13
};

struct any_node {
    int type, reserved[3];
    union {
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        CUdeviceptr freed;
        struct child_params child;
        struct condition_params condition;
        uint64_t room[29];
    };
    uint64_t more;
};
_Static_assert(sizeof(struct any_node) == 256, "of its size in cuda.h");

// Adds a node that has a graph inside, copied or moved.
static CUresult add_inner(uintptr_t *out, uintptr_t graph, const uintptr_t *deps, size_t n,
                          struct any_node *params) {
    struct graph *g;
    struct node *node = NULL;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = graph_for(graph, deps, n, &g);
    if (!rc && params->type == TYPE_CHILD)
        rc = graph_add_child(g, &params->child, &node);
    else if (!rc)
        rc = graph_add_condition(g, &params->condition, &node);
    rc = finish(rc, node, deps, n, out);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static CUresult add_any(uintptr_t *out, uintptr_t graph, const uintptr_t *deps, size_t n,
                        struct any_node *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case TYPE_ALLOC:
        return add_alloc_node(out, graph, deps, n, &params->alloc);
    case TYPE_FREE:
        return add_free_node(out, graph, deps, n, params->freed);
    case TYPE_CHILD:
    case TYPE_CONDITION:
        return add_inner(out, graph, deps, n, params);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

EXPORT CUresult cuGraphAddNode(uintptr_t *out, uintptr_t graph, const uintptr_t *deps, size_t n,
                               struct any_node *params) {
    ENTER();
    return add_any(out, graph, deps, n, params);
}

EXPORT CUresult cuGraphAddNode_v2(uintptr_t *out, uintptr_t graph, const uintptr_t *deps,
                                  const void *edges, size_t n, struct any_node *params) {
    ENTER();
    return edges ? CUDA_ERROR_NOT_SUPPORTED : add_any(out, graph, deps, n, params);
}

EXPORT CUresult cuGraphAddChildGraphNode(uintptr_t *out, uintptr_t graph, const uintptr_t *deps,
                                         size_t n, uintptr_t child) {
    ENTER();
    struct any_node params = {.type = TYPE_CHILD, .child = {child, 0}};
    return add_inner(out, graph, deps, n, &params);
}

static CUresult node_fact(uintptr_t handle, enum node_kind kind, void *out,
                          void (*tell)(const struct node *, void *)) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    const struct node *n = handle_get(HANDLE_NODE, handle);
    bool fits = n && (kind == NODE_EMPTY || n->kind == kind);
    if (fits)
        tell(n, out);
    pthread_mutex_unlock(&drv.lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void tell_type(const struct node *n, void *out) {
    static const int types[] = {
        [NODE_EMPTY] = TYPE_EMPTY, [NODE_RUN] = TYPE_HOST,    [NODE_ALLOC] = TYPE_ALLOC,
        [NODE_FREE] = TYPE_FREE,   [NODE_CHILD] = TYPE_CHILD, [NODE_CONDITION] = TYPE_CONDITION};
    *(int *)out = types[n->kind];
}

static void tell_alloc(const struct node *n, void *out) {
    enum { PINNED = 1 };
    *(CUDA_MEM_ALLOC_NODE_PARAMS *)out =
        (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = {.allocType = PINNED, .location = n->memory->at},
                                     .bytesize = n->memory->size,
                                     .dptr = n->memory->p};
}

static void tell_freed(const struct node *n, void *out) {
    *(CUdeviceptr *)out = ((const struct late_free *)n->arg)->p;
}

EXPORT CUresult cuGraphNodeGetType(uintptr_t node, int *type) {
    ENTER();
    return node_fact(node, NODE_EMPTY, type, tell_type);
}

EXPORT CUresult cuGraphMemAllocNodeGetParams(uintptr_t node, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    ENTER();
    return node_fact(node, NODE_ALLOC, params, tell_alloc);
}

EXPORT CUresult cuGraphMemFreeNodeGetParams(uintptr_t node, CUdeviceptr *p) {
    ENTER();
    return node_fact(node, NODE_FREE, p, tell_freed);
}

static void tell_child(const struct node *n, void *out) {
    *(uintptr_t *)out = n->inner->handle;
}

// Returns the node's own graph, which is not a copy.
EXPORT CUresult cuGraphChildGraphNodeGetGraph(uintptr_t node, uintptr_t *graph) {
    ENTER();
    return node_fact(node, NODE_CHILD, graph, tell_child);
}
