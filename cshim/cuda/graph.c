// SPDX-License-Identifier: Apache-2.0
#include "cuda/graph.h"

#include "core/admit.h"
#include "core/records.h"
#include "cuda/capture.h"
#include "cuda/draw.h"
#include "cuda/graph_nodes.h"
#include "cuda/pending.h"
#include "cuda/pool.h"
#include "cuda/state.h"

// An executable graph with memory of its own, or that frees somebody's. The driver allows one for
// each graph, and no launches of one at the same time; counts are kept right all the same.
struct ga_cuda_graph_exec {
    struct ga_cuda_graph_blocks blocks;
    uint64_t own[GA_DEVICES]; // bytes that it allocates and frees again
    bool frees_itself;        // any
    bool pends;               // own is taken, and pending until no launch is on its way
    uint64_t life;            // of the record, which is used again
    uint16_t tag;             // of own then
    uint32_t launches;        // on their way, or about to be
    uint32_t references;      // of the handle, and of each launch
};

// Executable graphs

static bool is_own(const struct ga_cuda_graph_block *b) {
    return b->bytes != 0 && b->frees >= b->allocs;
}

// Who it is to the pool that keeps its own memory.
static struct ga_cuda_pool_user user_of(const struct ga_cuda_graph_exec *x) {
    return (struct ga_cuda_pool_user){(uint64_t)(uintptr_t)x, x->life};
}

static struct ga_cuda_graph_exec *new_exec(struct ga_root *root,
                                           const struct ga_cuda_graph_blocks *blocks) {
    struct ga_cuda_graph_exec *x = ga_records_take(root, &ga_cuda(root)->graphs.unused, sizeof *x);
    if (!x)
        return NULL;
    *x = (struct ga_cuda_graph_exec){.blocks = *blocks, .life = x->life + 1, .references = 1};
    for (uint32_t i = 0; i < blocks->count; i++)
        if (is_own(&blocks->block[i])) {
            x->own[blocks->block[i].device] += blocks->block[i].bytes;
            x->frees_itself = true;
        }
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

// Takes it out of the table. NULL: it is not there.
static struct ga_cuda_graph_exec *take_exec(struct ga_cuda_graphs *g, ga_exec handle) {
    struct ga_entry e;
    ga_self_lock(&g->lock);
    bool found = ga_table_take(&g->execs, (uint64_t)(uintptr_t)handle, &e);
    ga_self_unlock(&g->lock);
    return found ? (struct ga_cuda_graph_exec *)(uintptr_t)e.context : NULL;
}

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

static struct ga_cuda_graph_exec *put_exec(struct ga_cuda_graphs *g, ga_exec handle,
                                           struct ga_cuda_graph_exec *x) {
    struct ga_entry e = {.key = (uint64_t)(uintptr_t)handle, .context = (uint64_t)(uintptr_t)x};
    struct ga_entry old = {0};
    ga_self_lock(&g->lock);
    bool put = ga_table_put(&g->execs, &e, &old);
    ga_self_unlock(&g->lock);
    if (!put)
        return x;
    return old.key ? (struct ga_cuda_graph_exec *)(uintptr_t)old.context
                   : NULL; // destroyed out of sight
}

// A launch, or an upload, on its way: what each device's pool of graph memory must have for it.
struct start {
    struct ga_root *root;
    struct ga_cuda_graph_exec *exec;
    struct ga_cuda_draw draw[GA_DEVICES]; // bytes 0: nothing there
    bool first;                           // no other launch on its way has the graph's own memory
    struct ga_cuda_pending_at at;
};

// What a block needs in this start (ga_cuda_graph_block.state).
enum { NOTHING, MEMORY, RECALLED, FREED };

static struct ga_entry entry_of(const struct ga_cuda_graph_block *b, struct ga_cuda_pool *pool,
                                uint16_t tag) {
    return (struct ga_entry){
        .key = b->address,
        .bytes = b->bytes,
        .context = (uint64_t)(uintptr_t)pool,
        .tag = tag,
        .device = (uint8_t)b->device,
        .kind = GA_MEMORY_GRAPH,
    };
}

// Whether the block that the graph left behind is there still.
static bool is_there(struct start *s, const struct ga_cuda_graph_block *b) {
    struct ga_entry e;
    return ga_self_find(&s->root->blocks, b->address, &e);
}

// Whether it is on its way back in stream order, which makes it the graph's again.
static bool recall(struct start *s, struct ga_cuda_graph_block *b) {
    struct ga_cuda_pool *pool = ga_cuda_pool_of_graphs(s->root, b->device);
    struct ga_entry block = entry_of(b, pool, 0);
    return pool && ga_cuda_pending_recall(s->root, &block, NULL, 0, &b->tag);
}

static void look_at(struct start *s, struct ga_cuda_graph_block *b, bool launch) {
    b->state = NOTHING;
    if (b->bytes == 0)
        b->state = launch && is_there(s, b) ? FREED : NOTHING;
    else if (!is_own(b) && !is_there(s, b))
        b->state = launch && recall(s, b) ? RECALLED : MEMORY;
}

// What was called back from the pending ones is there again, or goes back.
static void settle_recalled(struct start *s, bool launched) {
    for (uint32_t i = 0; i < s->exec->blocks.count; i++) {
        struct ga_cuda_graph_block *b = &s->exec->blocks.block[i];
        if (b->state != RECALLED)
            continue;
        struct ga_cuda_pool *pool = ga_cuda_pool_of_graphs(s->root, b->device);
        struct ga_entry e = entry_of(b, pool, b->tag);
        if (launched)
            ga_hold(s->root, &e);
        else
            ga_cuda_pending_add(s->root, &e, &s->at);
    }
}

// False: refused. What was drawn so far is to be undone.
static bool draw_all(struct start *s) {
    for (uint32_t d = 0; d < GA_DEVICES; d++) {
        struct ga_cuda_draw *draw = &s->draw[d];
        if (draw->bytes == 0)
            continue;
        draw->root = s->root;
        draw->kind = GA_MEMORY_GRAPH;
        draw->pool = ga_cuda_pool_of_graphs(s->root, d);
        if (draw->bytes == s->exec->own[d]) // what it left behind is not among it
            draw->user = user_of(s->exec);
        if (draw->pool && ga_cuda_draw(draw))
            continue;
        for (uint32_t undrawn = d; undrawn < GA_DEVICES; undrawn++)
            s->draw[undrawn].bytes = 0;
        return false;
    }
    return true;
}

// A launch is done, or was none after all. With the last one what was the graph's own its pool
// keeps.
static void done(struct ga_root *root, void *argument) {
    struct ga_cuda_graph_exec *x = argument;
    struct ga_cuda_graphs *g = &ga_cuda(root)->graphs;
    ga_self_lock(&g->lock);
    bool last = --x->launches == 0 && x->pends;
    uint16_t tag = x->tag;
    struct ga_cuda_pool_user user = user_of(x);
    if (last)
        x->pends = false;
    ga_self_unlock(&g->lock);
    for (uint32_t d = 0; last && d < GA_DEVICES; d++)
        if (x->own[d])
            ga_cuda_pool_executed(root, ga_cuda_pool_of_graphs(root, d), x->own[d], tag, &user);
    drop_reference(g, x);
}

// It does not come to be: nothing is taken any more.
static void undo_start(struct start *s) {
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (s->draw[d].bytes)
            ga_cuda_draw_undo(&s->draw[d]);
    settle_recalled(s, false);
    done(s->root, s->exec);
}

// False: refused, and nothing is taken.
static bool open_start(struct start *s, bool launch, ga_stream stream) {
    s->at = ga_cuda_pending_at(s->root, stream);
    struct ga_cuda_graph_exec *x = s->exec;
    ga_self_lock(&ga_cuda(s->root)->graphs.lock);
    s->first = x->launches == 0;
    x->launches++;
    ga_self_unlock(&ga_cuda(s->root)->graphs.lock);
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        s->draw[d] = (struct ga_cuda_draw){.bytes = s->first ? x->own[d] : 0};
    for (uint32_t i = 0; i < x->blocks.count; i++) {
        look_at(s, &x->blocks.block[i], launch);
        if (x->blocks.block[i].state == MEMORY)
            s->draw[x->blocks.block[i].device].bytes += x->blocks.block[i].bytes;
    }
    if (draw_all(s))
        return true;
    undo_start(s);
    return false;
}

// The bytes that were drawn for one device become what they were drawn for.
static void place(struct start *s, uint32_t device) {
    const struct ga_cuda_draw *d = &s->draw[device];
    const struct ga_cuda_graph_blocks *blocks = &s->exec->blocks;
    uint64_t grew = d->admitted;
    if (s->first && s->exec->own[device]) {
        ga_cuda_pool_pends(s->root, d->pool, s->exec->own[device], grew, d->tag);
        ga_self_lock(&ga_cuda(s->root)->graphs.lock);
        s->exec->pends = true;
        s->exec->tag = d->tag;
        ga_self_unlock(&ga_cuda(s->root)->graphs.lock);
        grew = 0;
    }
    for (uint32_t i = 0; i < blocks->count; i++) {
        if (blocks->block[i].state != MEMORY || blocks->block[i].device != device)
            continue;
        struct ga_entry e = entry_of(&blocks->block[i], d->pool, d->tag);
        ga_hold(s->root, &e); // without memory for it, it stays charged
        ga_cuda_pool_grew(s->root, d->pool, grew, d->tag);
        grew = 0;
    }
    // What is launched cannot be called back: what there is no room for stays uncharged until the
    // pool has given it up.
    ga_cuda_pool_balance(s->root, d->pool, d->admitted, &d->user);
}

// The blocks of others that the graph frees as it runs.
static void free_others(struct start *s) {
    for (uint32_t i = 0; i < s->exec->blocks.count; i++) {
        struct ga_entry e;
        if (s->exec->blocks.block[i].state == FREED &&
            ga_withdraw(s->root, s->exec->blocks.block[i].address, &e))
            ga_cuda_pending_add(s->root, &e, &s->at);
    }
}

static void settle_launch(struct start *s) {
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (s->draw[d].bytes)
            place(s, d);
    settle_recalled(s, true);
    free_others(s);
    // Without memory to hear of its end by, its own memory stays charged.
    if (!s->exec->frees_itself)
        done(s->root, s->exec);
    else
        ga_cuda_pending_call(s->root, &s->at, done, s->exec);
}

// Uploaded memory lies ready in the pool; nobody has it yet.
static void settle_upload(struct start *s) {
    for (uint32_t d = 0; d < GA_DEVICES; d++) {
        const struct ga_cuda_draw *draw = &s->draw[d];
        if (draw->bytes == 0)
            continue;
        ga_cuda_pool_grew(s->root, draw->pool, draw->admitted, draw->tag);
        ga_cuda_pool_freed(s->root, draw->pool, draw->bytes, draw->tag);
        ga_cuda_pool_balance(s->root, draw->pool, draw->admitted, &draw->user);
    }
    done(s->root, s->exec);
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

// A graph takes no memory where none with memory nodes was ever made.
static bool is_denied(const struct start *s) {
    struct ga_root *root = atomic_load(&ga_root_pointer);
    return !s->root && root && atomic_load(&ga_cuda(root)->graphs.execs.most) && ga_root_denies();
}

ga_result ga_cuda_graph_start(ga_result (*real)(ga_exec, ga_stream), bool launch,
                              ga_stream effective, ga_exec exec, ga_stream stream) {
    struct start s;
    if (!find_start(&s, exec, effective))
        return is_denied(&s) ? GA_CUDA_OUT_OF_MEMORY : real(exec, stream);
    if (!open_start(&s, launch, effective))
        return GA_CUDA_OUT_OF_MEMORY;
    ga_result result = real(exec, stream);
    if (result != GA_CUDA_SUCCESS)
        undo_start(&s);
    else if (launch)
        settle_launch(&s);
    else
        settle_upload(&s);
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
    if (upload) {
        s.root = m.root;
        s.exec = m.exec;
        ga_self_lock(&ga_cuda(m.root)->graphs.lock);
        m.exec->references++;
        ga_self_unlock(&ga_cuda(m.root)->graphs.lock);
        if (!open_start(&s, false, NULL))
            return ga_cuda_graph_made(&m, GA_CUDA_OUT_OF_MEMORY, NULL);
    }
    ga_result result = real(exec, graph, parameters);
    if (upload && result == GA_CUDA_SUCCESS)
        settle_upload(&s);
    else if (upload)
        undo_start(&s);
    return ga_cuda_graph_made(&m, result, exec);
}

// What is under way goes on as it was; the next launch is of what the other graph says.
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
