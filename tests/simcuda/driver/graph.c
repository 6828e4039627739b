// SPDX-License-Identifier: Apache-2.0
//
// Graphs: operations that were captured or added, done again with every launch. A memory node has
// its address from the beginning and its memory from a launch until the block is freed; after that
// the memory stays with the device's graph pool until it is trimmed.

#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum node_kind { NODE_EMPTY, NODE_RUN, NODE_ALLOC, NODE_FREE };
enum { AUTO_FREE_ON_LAUNCH = 1, UPLOAD = 2, PRIORITIES = 8 };

struct graph_memory {
    CUdeviceptr p;
    uint64_t id; // of the block
    unsigned refs;
};

struct node {
    uintptr_t handle;
    enum node_kind kind;
    unsigned refs; // of the graph and of what was made from it
    op_fn fn;
    void *arg;
    size_t size;
    struct graph_memory *memory;
};

struct graph {
    uintptr_t handle;
    struct node **nodes; // in an order that respects what depends on what
    size_t count;
    unsigned flags; // of an executable one
};

struct late_free {
    CUdeviceptr p;
    uint64_t id;
};

static void memory_unref(struct graph_memory *m) {
    if (!m || --m->refs)
        return;
    struct block *b = block_exact(m->p);
    if (b && b->id == m->id) {
        b->graph = NULL; // lives until it is freed
        if (b->unborn)
            block_drop(b);
    }
    free(m);
}

static void node_unref(struct node *n) {
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

void graph_drop(struct graph *g) {
    for (size_t i = 0; i < g->count; i++) {
        if (handle_get(HANDLE_GRAPH, g->handle))
            handle_drop(g->nodes[i]->handle);
        node_unref(g->nodes[i]);
    }
    handle_drop(g->handle);
    free(g->nodes);
    free(g);
}

static CUresult add(struct graph *g, struct node like, const void *arg, struct node **out) {
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
    n->handle = handle_new(HANDLE_NODE, n);
    g->nodes[g->count++] = n;
    if (out)
        *out = n;
    return CUDA_SUCCESS;
}

CUresult graph_add_run(struct graph *g, op_fn fn, const void *arg, size_t size) {
    return add(g, (struct node){.kind = NODE_RUN, .fn = fn, .size = size}, arg, NULL);
}

static CUresult add_alloc(struct graph *g, int phys, uint64_t size, CUdeviceptr *out,
                          struct node **node) {
    if (!size || size > sim_capacity(drv.sim, phys))
        return size ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    struct graph_memory *m = calloc(1, sizeof *m);
    struct block *b = m ? block_new(size) : NULL;
    if (!b) {
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    b->phys = phys;
    b->kind = BLOCK_ASYNC;
    b->unborn = true;
    b->graph = m;
    *m = (struct graph_memory){b->base, b->id, 1};
    CUresult rc = add(g, (struct node){.kind = NODE_ALLOC, .memory = m}, NULL, node);
    if (rc)
        memory_unref(m);
    else
        *out = m->p;
    return rc;
}

CUresult graph_add_alloc(struct graph *g, int phys, uint64_t size, CUdeviceptr *out) {
    return add_alloc(g, phys, size, out, NULL);
}

static void run_free(void *arg) {
    struct late_free *f = arg;
    pool_free_executed(f->p, f->id);
}

static CUresult add_free(struct graph *g, CUdeviceptr p, struct node **node) {
    struct block *b = block_exact(p);
    if (!b || !b->graph)
        return CUDA_ERROR_INVALID_VALUE; // only a graph's own memory can be freed by one
    struct late_free f = {p, b->id};
    struct node like = {.kind = NODE_FREE, .fn = run_free, .size = sizeof f};
    return add(g, like, &f, node);
}

CUresult graph_add_free(struct graph *g, CUdeviceptr p) {
    return add_free(g, p, NULL);
}

void graph_block_freed(struct block *b) {
    b->pool = NULL;
    b->unborn = true;
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

static CUresult destroy(enum handle_type type, uintptr_t handle) {
    pthread_mutex_lock(&drv.lock);
    struct graph *g = handle_get(type, handle);
    if (g)
        graph_drop(g);
    pthread_mutex_unlock(&drv.lock);
    return g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphDestroy(uintptr_t graph) {
    ENTER();
    return destroy(HANDLE_GRAPH, graph);
}

EXPORT CUresult cuGraphExecDestroy(uintptr_t exec) {
    ENTER();
    return destroy(HANDLE_EXEC, exec);
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

// What a node depends on was added before it, so that the order of addition will do.
static CUresult graph_for(uintptr_t graph, const uintptr_t *deps, size_t n, struct graph **out) {
    *out = handle_get(HANDLE_GRAPH, graph);
    if (!*out || (n && !deps))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++)
        if (!handle_get(HANDLE_NODE, deps[i]))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
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
    if (!rc && !(rc = add(g, (struct node){.kind = NODE_EMPTY}, NULL, &node)))
        *out = node->handle;
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuGraphAddMemAllocNode(uintptr_t *out, uintptr_t graph, const uintptr_t *deps,
                                       size_t n, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    ENTER();
    struct graph *g;
    struct node *node = NULL;
    if (!out || !params || !dev_valid(params->poolProps.location.id))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = graph_for(graph, deps, n, &g);
    if (!rc)
        rc = add_alloc(g, drv.phys[params->poolProps.location.id], params->bytesize, &params->dptr,
                       &node);
    if (!rc)
        *out = node->handle;
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuGraphAddMemFreeNode(uintptr_t *out, uintptr_t graph, const uintptr_t *deps,
                                      size_t n, CUdeviceptr p) {
    ENTER();
    struct graph *g;
    struct node *node = NULL;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&drv.lock);
    CUresult rc = graph_for(graph, deps, n, &g);
    if (!rc && !(rc = add_free(g, p, &node)))
        *out = node->handle;
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static CUresult instantiate_locked(struct graph *g, unsigned long long flags, uintptr_t *out) {
    struct graph *x = calloc(1, sizeof *x);
    struct node **nodes = calloc(g->count + 1, sizeof *nodes);
    if (!x || !nodes) {
        free(x);
        free(nodes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < g->count; i++) {
        nodes[i] = g->nodes[i];
        nodes[i]->refs++;
    }
    *x = (struct graph){.nodes = nodes, .count = g->count, .flags = (unsigned)flags};
    *out = x->handle = handle_new(HANDLE_EXEC, x);
    return CUDA_SUCCESS;
}

static CUresult instantiate(uintptr_t *out, uintptr_t graph, unsigned long long flags) {
    enum { KNOWN = AUTO_FREE_ON_LAUNCH | UPLOAD | PRIORITIES };
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & ~(unsigned long long)KNOWN)
        return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&drv.lock);
    struct graph *g = handle_get(HANDLE_GRAPH, graph);
    CUresult rc = g ? instantiate_locked(g, flags, out) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuGraphInstantiate(uintptr_t *out, uintptr_t graph, uintptr_t *node, char *log,
                                   size_t size) {
    ENTER();
    (void)node, (void)log, (void)size;
    return instantiate(out, graph, 0);
}

EXPORT CUresult cuGraphInstantiate_v2(uintptr_t *out, uintptr_t graph, uintptr_t *node, char *log,
                                      size_t size) {
    ENTER();
    (void)node, (void)log, (void)size;
    return instantiate(out, graph, 0);
}

EXPORT CUresult cuGraphInstantiateWithFlags(uintptr_t *out, uintptr_t graph,
                                            unsigned long long flags) {
    ENTER();
    return instantiate(out, graph, flags);
}

static bool is_live(const struct node *n, struct block **b) {
    *b = n->kind == NODE_ALLOC ? block_exact(n->memory->p) : NULL;
    return *b && !(*b)->unborn;
}

// Gives the graph's memory nodes their memory: all of them, or none.
static CUresult take_memory(struct graph *x) {
    struct block *b;
    for (size_t i = 0; i < x->count; i++)
        if (is_live(x->nodes[i], &b)) {
            if (!(x->flags & AUTO_FREE_ON_LAUNCH) || b->freeing)
                return CUDA_ERROR_INVALID_VALUE;
            mem_free_locked(b);
        }
    for (size_t i = 0; i < x->count; i++) {
        is_live(x->nodes[i], &b);
        if (!b)
            continue;
        if (pool_charge_graph(b)) {
            b->unborn = false;
            continue;
        }
        while (i-- > 0)
            if (is_live(x->nodes[i], &b))
                mem_free_locked(b);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static CUresult launch(struct context *ctx, uintptr_t exec, CUstream handle) {
    struct stream *s;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    pthread_mutex_lock(&drv.lock);
    struct graph *x = handle_get(HANDLE_EXEC, exec);
    if (!x)
        rc = CUDA_ERROR_INVALID_VALUE;
    else if (capture_is_on(s))
        rc = CUDA_ERROR_NOT_SUPPORTED; // a graph inside a graph
    else if (!(rc = capture_implicit_locked(s)))
        rc = take_memory(x);
    for (size_t i = 0; !rc && i < x->count; i++) {
        const struct node *n = x->nodes[i];
        rc = queue_put(s, n->fn, n->arg, n->size, NULL, NULL);
    }
    pthread_mutex_unlock(&drv.lock);
    queue_unref(s);
    return rc;
}

BOTH(cuGraphLaunch, _ptsz, (uintptr_t exec, CUstream hStream), launch(ctx, exec, s))
