// SPDX-License-Identifier: Apache-2.0
//
// Executable graphs: made, updated, uploaded, launched. An executable graph is a list of nodes in
// the order of addition; nodes of inner graphs stand at the position of their node.

#include "graph.h"

#include <stdlib.h>
#include <string.h>

enum { AUTO_FREE_ON_LAUNCH = 1, UPLOAD = 2, PRIORITIES = 8 };

// Reports whether the graph's memory nodes are in another executable graph. Their memory has one
// address, so the graph can be made executable only once at a time.
static bool is_executable_in_another(const struct graph *g, const struct exec *x) {
    for (size_t i = 0; i < g->count; i++) {
        const struct node *n = g->nodes[i];
        if ((n->kind == NODE_ALLOC && n->memory->exec && n->memory->exec != x) ||
            (n->inner && is_executable_in_another(n->inner, x)))
            return true;
    }
    return false;
}

bool graph_is_executable(const struct graph *g) {
    return is_executable_in_another(g, NULL);
}

// Writes the kinds of the nodes as letters, with inner graphs in brackets.
static size_t shape_of(const struct graph *g, char *out) {
    size_t length = 0;
    for (size_t i = 0; i < g->count; i++) {
        char c = (char)('a' + (int)g->nodes[i]->kind);
        if (out)
            out[length] = c;
        length++;
        if (!g->nodes[i]->inner)
            continue;
        if (out)
            out[length] = '(';
        length += 1 + shape_of(g->nodes[i]->inner, out ? out + length + 1 : NULL);
        if (out)
            out[length] = ')';
        length++;
    }
    return length;
}

static size_t count_of(const struct graph *g) {
    size_t count = g->count;
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i]->inner)
            count += count_of(g->nodes[i]->inner);
    return count;
}

static void flatten(const struct graph *g, struct exec *x) {
    for (size_t i = 0; i < g->count; i++) {
        struct node *n = g->nodes[i];
        if (n->kind == NODE_CHILD || (n->kind == NODE_CONDITION && n->taken))
            flatten(n->inner, x);
        if (n->inner)
            continue;
        n->refs++;
        x->nodes[x->count++] = n;
    }
}

// Fills an executable graph from a graph. False: no memory.
static bool fill(struct exec *x, const struct graph *g) {
    x->count = 0;
    x->nodes = calloc(count_of(g) + 1, sizeof *x->nodes);
    x->shape = calloc(shape_of(g, NULL) + 1, 1);
    if (!x->nodes || !x->shape)
        return false;
    shape_of(g, x->shape);
    flatten(g, x);
    return true;
}

static void empty(struct exec *x) {
    for (size_t i = 0; i < x->count; i++)
        graph_node_unref(x->nodes[i]);
    free(x->nodes);
    free(x->shape);
}

static void claim_memory(const struct exec *x, const struct exec *by) {
    for (size_t i = 0; i < x->count; i++)
        if (x->nodes[i]->kind == NODE_ALLOC)
            x->nodes[i]->memory->exec = by;
}

static CUresult instantiate_locked(struct graph *g, unsigned long long flags, uintptr_t *out) {
    struct exec *x = calloc(1, sizeof *x);
    if (!x || !fill(x, g)) {
        if (x)
            empty(x);
        free(x);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    x->flags = (unsigned)flags;
    claim_memory(x, x);
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
    CUresult rc = !g || g->place != FREE_STANDING ? CUDA_ERROR_INVALID_VALUE
                  : graph_is_executable(g)        ? CUDA_ERROR_NOT_SUPPORTED
                                                  : instantiate_locked(g, flags, out);
    pthread_mutex_unlock(&drv.lock);
    return rc;
}

static CUresult destroy(uintptr_t handle) {
    pthread_mutex_lock(&drv.lock);
    struct exec *x = handle_get(HANDLE_EXEC, handle);
    if (x) {
        handle_drop(HANDLE_EXEC, handle);
        claim_memory(x, NULL);
        empty(x);
        free(x);
    }
    pthread_mutex_unlock(&drv.lock);
    return x ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphExecDestroy(uintptr_t exec) {
    ENTER();
    return destroy(exec);
}

// Updates. Running launches continue with the old nodes; the next launch has the new nodes.

enum update_result { UPDATED, UPDATE_ERROR, TOPOLOGY_CHANGED, KIND_CHANGED, UPDATE_REFUSED = 6 };

static enum update_result update_locked(struct exec *x, const struct graph *g) {
    struct exec fresh = {0};
    if (is_executable_in_another(g, x))
        return UPDATE_REFUSED;
    if (!fill(&fresh, g)) {
        empty(&fresh);
        return UPDATE_ERROR;
    }
    if (strcmp(x->shape, fresh.shape) != 0) {
        bool as_many = strlen(x->shape) == strlen(fresh.shape);
        empty(&fresh);
        return as_many ? KIND_CHANGED : TOPOLOGY_CHANGED;
    }
    claim_memory(x, NULL);
    empty(x);
    x->nodes = fresh.nodes;
    x->count = fresh.count;
    x->shape = fresh.shape;
    claim_memory(x, x);
    return UPDATED;
}

static CUresult update(uintptr_t exec, uintptr_t graph, int *result) {
    enum { ERROR_EXEC_UPDATE_FAILURE = 910 };
    *result = UPDATE_ERROR;
    pthread_mutex_lock(&drv.lock);
    struct exec *x = handle_get(HANDLE_EXEC, exec);
    const struct graph *g = handle_get(HANDLE_GRAPH, graph);
    bool can = x && g && g->place == FREE_STANDING;
    if (can)
        *result = update_locked(x, g);
    pthread_mutex_unlock(&drv.lock);
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    return *result == UPDATED ? CUDA_SUCCESS : ERROR_EXEC_UPDATE_FAILURE;
}

struct update_info {
    int result;
    uintptr_t node, from;
};

EXPORT CUresult cuGraphExecUpdate(uintptr_t exec, uintptr_t graph, uintptr_t *node, int *result) {
    ENTER();
    if (!node || !result)
        return CUDA_ERROR_INVALID_VALUE;
    *node = 0;
    return update(exec, graph, result);
}

EXPORT CUresult cuGraphExecUpdate_v2(uintptr_t exec, uintptr_t graph, struct update_info *info) {
    ENTER();
    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    *info = (struct update_info){0};
    return update(exec, graph, &info->result);
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

// Reports whether a block of the last launch still has memory: it was freed later, is to be freed
// now, or makes the launch fail.
static bool still_has_memory(const struct exec *x, const struct node *n, const struct block *b) {
    return !b->without_memory && !n->memory->own && !b->freeing &&
           !(x->flags & AUTO_FREE_ON_LAUNCH);
}

static void take_back(struct exec *x, size_t count, const bool *taken) {
    struct block *b;
    for (size_t i = 0; i < count; i++)
        if (taken[i] && (b = block_of(x->nodes[i])))
            mem_free_locked(b);
}

// Takes memory for the memory nodes that have none: for all of them, or for none.
static CUresult take_memory(struct exec *x, bool *taken) {
    struct block *b;
    for (size_t i = 0; i < x->count; i++)
        if ((b = block_of(x->nodes[i])) && still_has_memory(x, x->nodes[i], b))
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < x->count; i++) {
        b = block_of(x->nodes[i]);
        if (!b || !b->without_memory)
            continue;
        if (!pool_charge_graph(b)) {
            take_back(x, i, taken);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        b->without_memory = false;
        taken[i] = true;
    }
    return CUDA_SUCCESS;
}

static CUresult start_locked(struct exec *x, bool upload) {
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
        take_back(x, x->count, taken); // the memory is kept in the pool
    free(taken);
    return rc;
}

static CUresult upload(struct context *ctx, uintptr_t exec, CUstream handle) {
    struct stream *s;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    pthread_mutex_lock(&drv.lock);
    struct exec *x = handle_get(HANDLE_EXEC, exec);
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
        destroy(*out);
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

// Captures a launch as a child node. A graph with memory nodes would have to be moved there: the
// launch is refused, and invalidates the capture.
static CUresult capture_launch(struct stream *s, const struct exec *x) {
    struct graph *g;
    CUresult rc = capture_graph(s, &g);
    for (size_t i = 0; !rc && i < x->count; i++)
        if (x->nodes[i]->kind == NODE_ALLOC || x->nodes[i]->kind == NODE_FREE)
            return capture_refuse_locked(s);
    struct graph *inner = rc ? NULL : graph_new();
    if (!inner)
        return rc ? rc : CUDA_ERROR_OUT_OF_MEMORY;
    inner->captured = g->captured = true;
    inner->place = CLONED_CHILD;
    for (size_t i = 0; !rc && i < x->count; i++) {
        const struct node *n = x->nodes[i];
        struct node like = {.kind = n->kind, .fn = n->fn, .size = n->size};
        rc = graph_add(inner, like, n->arg, NULL);
    }
    if (!rc)
        rc = graph_add(g, (struct node){.kind = NODE_CHILD, .inner = inner}, NULL, NULL);
    if (rc)
        graph_drop(inner);
    return rc;
}

static CUresult launch(struct context *ctx, uintptr_t exec, CUstream handle) {
    struct stream *s;
    CUresult rc = queue_find(ctx, handle, &s);
    if (rc)
        return rc;
    pthread_mutex_lock(&drv.lock);
    struct exec *x = handle_get(HANDLE_EXEC, exec);
    bool captured = capture_is_on(s);
    if (!x)
        rc = CUDA_ERROR_INVALID_VALUE;
    else if (captured)
        rc = capture_launch(s, x);
    else if (!(rc = capture_implicit_locked(s)))
        rc = start_locked(x, false);
    for (size_t i = 0; !rc && !captured && i < x->count; i++) {
        const struct node *n = x->nodes[i];
        rc = queue_put(s, n->fn, n->arg, n->size, NULL, NULL);
    }
    pthread_mutex_unlock(&drv.lock);
    queue_unref(s);
    return rc;
}

BOTH(cuGraphLaunch, _ptsz, (uintptr_t exec, CUstream hStream), launch(ctx, exec, s))
