// SPDX-License-Identifier: Apache-2.0
#include "cuda/graph.h"

#include "core/records.h"
#include "cuda/capture.h"
#include "cuda/graph_nodes.h"
#include "cuda/order.h"
#include "cuda/state.h"
#include "memory/pending.h"

// An executable graph with memory of its own, or that frees another's block. Its blocks do not
// change. The driver allows one for each graph.
struct ga_cuda_graph_exec {
    struct ga_cuda_graph_blocks blocks;
    uint64_t own[GA_DEVICES]; // bytes that it allocates and frees again
    // ga_memory_pool.turn after its last launch; 0: it was not launched. As long as the pool's turn
    // is the same, the memory of that launch is still in the pool, and the driver uses it again.
    _Atomic uint64_t had[GA_DEVICES];
    uint32_t references; // of the handle, and of each launch
};

// Executable graphs

static bool is_own(const struct ga_cuda_graph_block *b) {
    return b->bytes != 0 && b->frees >= b->allocs;
}

static struct ga_cuda_graph_exec *new_exec(struct ga_root *root,
                                           const struct ga_cuda_graph_blocks *blocks) {
    struct ga_cuda_graph_exec *x = ga_records_take(root, &ga_cuda(root)->graphs.unused, sizeof *x);
    if (!x)
        return NULL;
    *x = (struct ga_cuda_graph_exec){.blocks = *blocks, .references = 1};
    for (uint32_t i = 0; i < blocks->count; i++)
        if (is_own(&blocks->block[i]))
            x->own[blocks->block[i].device] += blocks->block[i].bytes;
    return x;
}

static void drop_reference(struct ga_cuda_graphs *g, struct ga_cuda_graph_exec *x) {
    struct ga_cuda_graph_blocks blocks = {0};
    ga_self_lock(&g->lock);
    if (--x->references == 0) {
        blocks = x->blocks;
        ga_records_give(&g->unused, x);
    }
    ga_self_unlock(&g->lock);
    ga_cuda_graph_blocks_drop(&blocks);
}

// Takes an executable graph out of the table, with the reference that the handle has. NULL: the
// table does not have it.
static struct ga_cuda_graph_exec *take_exec(struct ga_cuda_graphs *g, ga_exec handle) {
    struct ga_entry e;
    ga_self_lock(&g->lock);
    bool found = ga_table_take(&g->execs, (uint64_t)(uintptr_t)handle, &e);
    ga_self_unlock(&g->lock);
    return found ? (struct ga_cuda_graph_exec *)(uintptr_t)e.context : NULL;
}

// Finds an executable graph, with a reference more, which the caller drops.
static struct ga_cuda_graph_exec *find_exec(struct ga_cuda_graphs *g, ga_exec handle) {
    struct ga_entry e;
    ga_self_lock(&g->lock);
    bool found = ga_table_find(&g->execs, (uint64_t)(uintptr_t)handle, &e);
    struct ga_cuda_graph_exec *x = found ? (struct ga_cuda_graph_exec *)(uintptr_t)e.context : NULL;
    if (x)
        x->references++;
    ga_self_unlock(&g->lock);
    return x;
}

// Puts an executable graph into the table. Returns the one whose reference the caller must drop: x
// if there is no memory, or the one that had the handle before; or NULL.
static struct ga_cuda_graph_exec *put_exec(struct ga_cuda_graphs *g, ga_exec handle,
                                           struct ga_cuda_graph_exec *x) {
    struct ga_entry e = {.key = (uint64_t)(uintptr_t)handle, .context = (uint64_t)(uintptr_t)x};
    struct ga_entry old = {0};
    ga_self_lock(&g->lock);
    bool put = ga_table_put(&g->execs, &e, &old);
    ga_self_unlock(&g->lock);
    if (!put)
        return x;
    return old.key ? (struct ga_cuda_graph_exec *)(uintptr_t)old.context : NULL;
}

// Launches and uploads

// A launch, or an upload, under way: what the device's pools of graph memory must have for it.
struct start {
    struct ga_root *root;
    struct ga_cuda_graph_exec *exec;
    struct ga_memory_take take[GA_DEVICES]; // bytes 0: nothing there
    struct ga_memory_at at;
};

// Whether a launch makes a block that the graph leaves behind. The driver refuses it if the block
// of an earlier launch is there, unless the graph frees that first: then its memory is used again.
static bool leaves(const struct start *s, const struct ga_cuda_graph_block *b) {
    return b->bytes != 0 && !is_own(b) && !ga_memory_pool_holds(s->root, b->address);
}

static void untake_below(struct start *s, uint32_t devices) {
    for (uint32_t d = 0; d < devices; d++)
        if (s->take[d].bytes)
            ga_memory_pool_untake(&s->take[d]);
}

// False: refused.
static bool take_on(struct start *s, uint32_t device) {
    struct ga_memory_take *t = &s->take[device];
    t->root = s->root;
    t->at = s->at;
    t->kind = GA_MEMORY_GRAPH;
    t->pool = ga_cuda_order_graphs(s->root, device);
    if (!t->pool)
        return false;
    // A launch cannot be called back: memory that may be new is admitted as new.
    bool again = t->bytes == s->exec->own[device] &&
                 atomic_load(&s->exec->had[device]) == ga_memory_pool_copy(s->root, t->pool).turn;
    return ga_memory_pool_take(t, again ? GA_MEMORY_TAKE_AGAIN : GA_MEMORY_TAKE_NEW);
}

// False: refused, and nothing is taken.
static bool open_start(struct start *s, ga_stream stream) {
    const struct ga_cuda_graph_exec *x = s->exec;
    s->at = ga_cuda_order_at(s->root, stream);
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        s->take[d] = (struct ga_memory_take){.bytes = x->own[d]};
    for (uint32_t i = 0; i < x->blocks.count; i++)
        if (leaves(s, &x->blocks.block[i]))
            s->take[x->blocks.block[i].device].bytes += x->blocks.block[i].bytes;
    for (uint32_t d = 0; d < GA_DEVICES; d++) {
        if (s->take[d].bytes == 0 || take_on(s, d))
            continue;
        untake_below(s, d);
        return false;
    }
    return true;
}

// Holds a block that a launch left behind. *left: bytes that open_start took for such blocks on the
// device, and that no block holds yet. They do not cover a block if an earlier launch's block was
// at its address in open_start, and another thread freed that before the driver launched. Such a
// block is taken now; if there is no room for it, the pool is charged with it by a reading, as
// kept.
static void hold_left(struct start *s, const struct ga_cuda_graph_block *b, uint64_t *left) {
    struct ga_memory_take *opened = &s->take[b->device];
    struct ga_memory_take now = {.root = s->root, .at = s->at, .bytes = b->bytes};
    if (*left >= b->bytes) {
        *left -= b->bytes;
        ga_memory_pool_hold(opened, b->address, b->bytes);
        return;
    }
    now.kind = GA_MEMORY_GRAPH;
    now.pool = ga_cuda_order_graphs(s->root, b->device);
    if (!now.pool || !ga_memory_pool_take(&now, GA_MEMORY_TAKE_NOW))
        return;
    ga_memory_pool_hold(&now, b->address, b->bytes);
    ga_memory_pool_taken(&now);
}

// The driver has launched a graph. A block that the graph leaves behind becomes the program's. A
// block of another graph that it frees is pending on the launch's stream, and so are the bytes of
// its own blocks, which it frees itself, until the stream has executed the launch.
static void settle_launch(struct start *s) {
    struct ga_cuda_graph_exec *x = s->exec;
    uint64_t left[GA_DEVICES];
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        left[d] = s->take[d].bytes - x->own[d];
    for (uint32_t i = 0; i < x->blocks.count; i++) {
        const struct ga_cuda_graph_block *b = &x->blocks.block[i];
        struct ga_entry e;
        if (leaves(s, b))
            hold_left(s, b, &left[b->device]);
        else if (b->bytes == 0 && ga_memory_pool_withdraw(s->root, b->address, &e))
            ga_memory_pending_add(s->root, &e, &s->at);
    }
    for (uint32_t d = 0; d < GA_DEVICES; d++) {
        struct ga_memory_take *t = &s->take[d];
        if (t->bytes == 0)
            continue;
        if (x->own[d])
            ga_memory_pending_add_bytes(s->root, t->pool, x->own[d], t->tag, &s->at);
        ga_memory_pool_taken(t); // what there is no room for stays uncharged until there is
        atomic_store(&x->had[d], ga_memory_pool_copy(s->root, t->pool).turn);
    }
}

// False: not arbitrated, or without memory.
static bool find_start(struct start *s, ga_exec handle, ga_stream stream) {
    s->root = ga_root_get();
    struct ga_cuda_graphs *g = s->root ? &ga_cuda(s->root)->graphs : NULL;
    if (!g || atomic_load(&g->execs.most) == 0 || ga_cuda_capturing(stream))
        return false;
    s->exec = find_exec(g, handle);
    return s->exec != NULL;
}

// A graph takes no memory if none with memory nodes was ever made.
static bool is_denied(const struct start *s) {
    struct ga_root *root = atomic_load(&ga_root_pointer);
    return !s->root && root && atomic_load(&ga_cuda(root)->graphs.execs.most) && ga_root_denies();
}

// Asks the driver, and settles. An upload leaves the memory in the pool, ready for the launch. None
// of it is live yet, so what was taken is given back, and a reading charges it as kept.
static ga_result start(struct start *s, ga_result (*real)(ga_exec, ga_stream), bool launch,
                       ga_exec exec, ga_stream stream) {
    ga_result result = real(exec, stream);
    if (launch && result == GA_CUDA_SUCCESS)
        settle_launch(s);
    else
        untake_below(s, GA_DEVICES);
    return result;
}

ga_result ga_cuda_graph_start(ga_result (*real)(ga_exec, ga_stream), bool launch,
                              ga_stream effective, ga_exec exec, ga_stream stream) {
    struct start s;
    if (!find_start(&s, exec, effective))
        return is_denied(&s) ? GA_CUDA_OUT_OF_MEMORY : real(exec, stream);
    ga_result result =
        open_start(&s, effective) ? start(&s, real, launch, exec, stream) : GA_CUDA_OUT_OF_MEMORY;
    drop_reference(&ga_cuda(s.root)->graphs, s.exec);
    return result;
}

// Making and ending them

bool ga_cuda_graph_begin(struct ga_cuda_graph_making *m, ga_graph graph) {
    struct ga_cuda_graph_blocks blocks;
    *m = (struct ga_cuda_graph_making){.root = ga_root_get()};
    if (!graph)
        return true;
    if (!m->root)
        return !ga_root_denies();
    if (!ga_cuda_graph_blocks_read(m->root, graph, &blocks))
        return false;
    if (blocks.count == 0)
        return true;
    m->exec = new_exec(m->root, &blocks);
    if (!m->exec)
        ga_cuda_graph_blocks_drop(&blocks);
    return m->exec != NULL;
}

ga_result ga_cuda_graph_made(struct ga_cuda_graph_making *m, ga_result result,
                             const ga_exec *handle) {
    struct ga_cuda_graph_exec *gone = m->exec;
    if (!m->exec)
        return result;
    if (result == GA_CUDA_SUCCESS && handle && *handle)
        gone = put_exec(&ga_cuda(m->root)->graphs, *handle, m->exec);
    if (gone)
        drop_reference(&ga_cuda(m->root)->graphs, gone);
    return result;
}

ga_result ga_cuda_graph_instantiate_with(GA_FN_cuGraphInstantiateWithParams *real, ga_exec *exec,
                                         ga_graph graph, struct ga_cu_instantiate *parameters) {
    struct ga_cuda_graph_making m;
    struct start s;
    if (!ga_cuda_graph_begin(&m, graph))
        return GA_CUDA_OUT_OF_MEMORY;
    bool upload = m.exec && parameters && (parameters->flags & GA_CUDA_INSTANTIATE_UPLOAD) != 0;
    s = (struct start){.root = m.root, .exec = m.exec};
    if (upload && !open_start(&s, NULL))
        return ga_cuda_graph_made(&m, GA_CUDA_OUT_OF_MEMORY, NULL);
    ga_result result = real(exec, graph, parameters);
    if (upload)
        untake_below(&s, GA_DEVICES);
    return ga_cuda_graph_made(&m, result, exec);
}

// Launches that the driver has begun keep a reference to what the graph was before. If the new
// graph has no memory nodes, the executable graph leaves the table.
ga_result ga_cuda_graph_updated(struct ga_cuda_graph_making *m, ga_result result, ga_exec handle) {
    if (m->exec || !m->root || result != GA_CUDA_SUCCESS)
        return ga_cuda_graph_made(m, result, &handle);
    struct ga_cuda_graphs *g = &ga_cuda(m->root)->graphs;
    struct ga_cuda_graph_exec *had = take_exec(g, handle);
    if (had)
        drop_reference(g, had);
    return result;
}

// As with memory: out of the table before the driver, which may give the handle out again. What
// its launches hold they hold on; what the pool keeps it keeps until it is trimmed.
ga_result ga_cuda_graph_exec_destroy(GA_FN_cuGraphExecDestroy *real, ga_exec exec) {
    struct ga_root *root = ga_root_get();
    if (!root)
        return real(exec);
    struct ga_cuda_graphs *g = &ga_cuda(root)->graphs;
    struct ga_cuda_graph_exec *gone = take_exec(g, exec);
    ga_result result = real(exec);
    if (gone && result != GA_CUDA_SUCCESS)
        gone = put_exec(g, exec, gone);
    if (gone)
        drop_reference(g, gone);
    return result;
}
