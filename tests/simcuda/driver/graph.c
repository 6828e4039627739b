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
    CUmemLocation at;
    uint64_t size;
    const struct graph *home; // never followed
    bool own;                 // freed by the graph that allocates it
    bool instantiated;
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
    unsigned flags;
    bool executable;
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
        if (g->executable && g->nodes[i]->kind == NODE_ALLOC)
            g->nodes[i]->memory->instantiated = false;
        if (!g->executable)
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

static CUresult add_alloc(struct graph *g, const CUmemLocation *at, uint64_t size, CUdeviceptr *out,
                          struct node **node) {
    int phys = drv.phys[dev_at(at)];
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
    *m = (struct graph_memory){
        .p = b->base, .id = b->id, .refs = 1, .at = *at, .size = size, .home = g};
    CUresult rc = add(g, (struct node){.kind = NODE_ALLOC, .memory = m}, NULL, node);
    if (rc)
        memory_unref(m);
    else
        *out = m->p;
    return rc;
}

CUresult graph_add_alloc(struct graph *g, CUdevice dev, uint64_t size, CUdeviceptr *out) {
    return add_alloc(g, &(CUmemLocation){LOCATION_DEVICE, dev}, size, out, NULL);
}

// What a graph frees itself is there until the last of its launches has done so.
static void run_free(void *arg) {
    struct late_free *f = arg;
    pthread_mutex_lock(&drv.lock);
    struct block *b = block_exact(f->p);
    if (b && b->id == f->id && !b->unborn && (b->launches == 0 || --b->launches == 0))
        mem_free_locked(b);
    pthread_mutex_unlock(&drv.lock);
}

static CUresult add_free(struct graph *g, CUdeviceptr p, struct node **node) {
    struct block *b = block_exact(p);
    if (!b || !b->graph)
        return CUDA_ERROR_INVALID_VALUE; // only a graph's own memory can be freed by one
    struct late_free f = {p, b->id};
    if (b->graph->home == g)
        b->graph->own = true;
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
    if (!rc)
        *out = node->handle;
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
    if (!rc && !(rc = add_free(g, p, &node)))
        *out = node->handle;
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

EXPORT CUresult cuGraphAddMemFreeNode(uintptr_t *out, uintptr_t graph, const uintptr_t *deps,
                                      size_t n, CUdeviceptr p) {
    ENTER();
    return add_free_node(out, graph, deps, n, p);
}

enum node_type { TYPE_HOST = 3, TYPE_EMPTY = 5, TYPE_ALLOC = 10, TYPE_FREE = 11 };

struct any_node {
    int type, reserved[3];
    union {
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        CUdeviceptr freed;
        uint64_t room[29];
    };
    uint64_t more;
};

static CUresult add_any(uintptr_t *out, uintptr_t graph, const uintptr_t *deps, size_t n,
                        struct any_node *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case TYPE_ALLOC:
        return add_alloc_node(out, graph, deps, n, &params->alloc);
    case TYPE_FREE:
        return add_free_node(out, graph, deps, n, params->freed);
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
    static const int types[] = {[NODE_EMPTY] = TYPE_EMPTY,
                                [NODE_RUN] = TYPE_HOST,
                                [NODE_ALLOC] = TYPE_ALLOC,
                                [NODE_FREE] = TYPE_FREE};
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

// Memory has one address, so that a graph with such nodes can be made executable once at a time.
static bool is_instantiated(const struct graph *g) {
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i]->kind == NODE_ALLOC && g->nodes[i]->memory->instantiated)
            return true;
    return false;
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
        if (nodes[i]->kind == NODE_ALLOC)
            nodes[i]->memory->instantiated = true;
    }
    *x = (struct graph){
        .nodes = nodes, .count = g->count, .flags = (unsigned)flags, .executable = true};
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
    CUresult rc = !g                   ? CUDA_ERROR_INVALID_VALUE
                  : is_instantiated(g) ? CUDA_ERROR_NOT_SUPPORTED
                                       : instantiate_locked(g, flags, out);
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
    // Only cuGraphInstantiateWithParams has a stream to upload on.
    return flags & UPLOAD ? CUDA_ERROR_INVALID_VALUE : instantiate(out, graph, flags);
}

static struct block *block_of(const struct node *n) {
    return n->kind == NODE_ALLOC ? block_exact(n->memory->p) : NULL;
}

// What was left behind by the last launch: freed since, or to be freed now, or in the way.
static bool is_in_the_way(const struct graph *x, const struct node *n, const struct block *b) {
    return !b->unborn && !n->memory->own && !b->freeing && !(x->flags & AUTO_FREE_ON_LAUNCH);
}

static void take_back(struct graph *x, size_t count, const bool *taken) {
    struct block *b;
    for (size_t i = 0; i < count; i++)
        if (taken[i] && (b = block_of(x->nodes[i])))
            mem_free_locked(b);
}

// Gives the graph's memory nodes their memory, where they have none: all of them, or none.
static CUresult take_memory(struct graph *x, bool *taken) {
    struct block *b;
    for (size_t i = 0; i < x->count; i++)
        if ((b = block_of(x->nodes[i])) && is_in_the_way(x, x->nodes[i], b))
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < x->count; i++) {
        b = block_of(x->nodes[i]);
        if (!b || !b->unborn)
            continue;
        if (!pool_charge_graph(b)) {
            take_back(x, i, taken);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        b->unborn = false;
        taken[i] = true;
    }
    return CUDA_SUCCESS;
}

static CUresult start_locked(struct graph *x, bool upload) {
    bool *taken = calloc(x->count + 1, sizeof *taken);
    if (!taken)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block *b;
    CUresult rc = take_memory(x, taken);
    for (size_t i = 0; !rc && !upload && i < x->count; i++) {
        if (!(b = block_of(x->nodes[i])))
            continue;
        if (b->freeing)
            pool_recall_locked(b);
        b->launches += x->nodes[i]->memory->own;
    }
    if (!rc && upload)
        take_back(x, x->count, taken); // it lies ready in the pool
    free(taken);
    return rc;
}

static CUresult upload(struct context *ctx, uintptr_t exec, CUstream handle) {
    struct stream *s;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    pthread_mutex_lock(&drv.lock);
    struct graph *x = handle_get(HANDLE_EXEC, exec);
    rc = !x ? CUDA_ERROR_INVALID_VALUE : capture_implicit_locked(s);
    if (!rc)
        rc = start_locked(x, true);
    pthread_mutex_unlock(&drv.lock);
    queue_unref(s);
    return rc;
}

BOTH(cuGraphUpload, _ptsz, (uintptr_t exec, CUstream hStream), upload(ctx, exec, s))

struct instantiate_params {
    unsigned long long flags;
    CUstream upload;
    uintptr_t error;
    int result;
};

static CUresult instantiate_with(struct context *ctx, uintptr_t *out, uintptr_t graph,
                                 struct instantiate_params *params, CUstream dflt) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = instantiate(out, graph, params->flags);
    if (!rc && (params->flags & UPLOAD) &&
        (rc = upload(ctx, *out, stream_default(params->upload, dflt))))
        destroy(HANDLE_EXEC, *out);
    params->error = 0;
    params->result = rc != 0;
    return rc;
}

EXPORT CUresult cuGraphInstantiateWithParams(uintptr_t *out, uintptr_t graph,
                                             struct instantiate_params *params) {
    ENTER_CTX(ctx);
    return instantiate_with(ctx, out, graph, params, CU_STREAM_LEGACY);
}

EXPORT CUresult cuGraphInstantiateWithParams_ptsz(uintptr_t *out, uintptr_t graph,
                                                  struct instantiate_params *params) {
    ENTER_CTX(ctx);
    return instantiate_with(ctx, out, graph, params, CU_STREAM_PER_THREAD);
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
        rc = start_locked(x, false);
    for (size_t i = 0; !rc && i < x->count; i++) {
        const struct node *n = x->nodes[i];
        rc = queue_put(s, n->fn, n->arg, n->size, NULL, NULL);
    }
    pthread_mutex_unlock(&drv.lock);
    queue_unref(s);
    return rc;
}

BOTH(cuGraphLaunch, _ptsz, (uintptr_t exec, CUstream hStream), launch(ctx, exec, s))
