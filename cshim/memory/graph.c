// SPDX-License-Identifier: Apache-2.0
// Records of executable graphs with memory nodes, and the accounting of their launches. pool.h
// charges the memory; pending.h waits for what a launch frees.
#include "memory/graph.h"

#include "core/records.h"
#include "memory/pending.h"

// The record of an executable graph that allocates or frees memory. Its blocks never change. The
// driver allows a graph with memory nodes only one executable graph.
struct ga_memory_graph_exec {
    struct ga_memory_graph_blocks blocks;
    uint64_t own[GA_DEVICES]; // bytes that a launch allocates and frees again
    // ga_memory_pool.turn after its last launch; 0: never launched. While the pool's turn is still
    // this, the pool keeps the memory of that launch, and the driver uses it for the next one.
    _Atomic uint64_t last_turn[GA_DEVICES];
    uint32_t references; // one of the table, and one of each launch under way
};

// Executable graphs

// Reports whether the graph frees the block as often as it allocates the block.
static bool is_own(const struct ga_memory_graph_block *b) {
    return b->bytes != 0 && b->frees >= b->allocs;
}

static struct ga_memory_graph_exec *new_exec(struct ga_root *root,
                                             const struct ga_memory_graph_blocks *blocks) {
    struct ga_memory_graph_exec *x =
        ga_records_acquire(root, &ga_memory_of(root)->graphs.unused, sizeof *x);
    if (!x)
        return NULL;
    *x = (struct ga_memory_graph_exec){.blocks = *blocks, .references = 1};
    for (uint32_t i = 0; i < blocks->count; i++)
        if (is_own(&blocks->block[i]))
            x->own[blocks->block[i].device] += blocks->block[i].bytes;
    return x;
}

static void drop_reference(struct ga_memory_graphs *g, struct ga_memory_graph_exec *x) {
    struct ga_memory_graph_blocks blocks = {0};
    ga_self_lock(&g->lock);
    if (--x->references == 0) {
        blocks = x->blocks;
        ga_records_release(&g->unused, x);
    }
    ga_self_unlock(&g->lock);
    ga_memory_graph_blocks_drop(&blocks);
}

// Removes an executable graph from the table; its reference passes to the caller. NULL: not in the
// table.
static struct ga_memory_graph_exec *remove_exec(struct ga_memory_graphs *g, void *handle) {
    struct ga_entry e;
    ga_self_lock(&g->lock);
    bool found = ga_table_remove(&g->execs, (uint64_t)(uintptr_t)handle, &e);
    ga_self_unlock(&g->lock);
    return found ? (struct ga_memory_graph_exec *)(uintptr_t)e.context : NULL;
}

// Finds an executable graph, and adds a reference, which the caller must drop. NULL: not found.
static struct ga_memory_graph_exec *find_exec(struct ga_memory_graphs *g, void *handle) {
    struct ga_entry e;
    ga_self_lock(&g->lock);
    bool found = ga_table_find(&g->execs, (uint64_t)(uintptr_t)handle, &e);
    struct ga_memory_graph_exec *x =
        found ? (struct ga_memory_graph_exec *)(uintptr_t)e.context : NULL;
    if (x)
        x->references++;
    ga_self_unlock(&g->lock);
    return x;
}

// Puts an executable graph into the table. Returns a graph whose reference the caller must drop: x
// if there is no memory for the entry, else the graph that had the handle before; NULL: none.
static struct ga_memory_graph_exec *put_exec(struct ga_memory_graphs *g, void *handle,
                                             struct ga_memory_graph_exec *x) {
    struct ga_entry e = {.key = (uint64_t)(uintptr_t)handle, .context = (uint64_t)(uintptr_t)x};
    struct ga_entry old = {0};
    ga_self_lock(&g->lock);
    bool put = ga_table_put(&g->execs, &e, &old);
    ga_self_unlock(&g->lock);
    if (!put)
        return x;
    return old.key ? (struct ga_memory_graph_exec *)(uintptr_t)old.context : NULL;
}

// Launches and uploads

static struct ga_memory_pool *graph_pool(const struct ga_memory_graph_start *s, uint32_t device) {
    return ga_memory_pool_of_kind(s->root, s->at.driver, device, GA_MEMORY_POOL_OF_GRAPHS);
}

// Reports whether a launch makes a new block that the graph does not free. It does not if a block
// of an earlier launch is at the address. Then the graph either frees that block first, and the
// driver reuses its memory, or the driver refuses the launch.
static bool makes_block(const struct ga_memory_graph_start *s,
                        const struct ga_memory_graph_block *b) {
    return b->bytes != 0 && !is_own(b) && !ga_memory_pool_has(s->root, b->address);
}

// Undoes the acquisitions on the devices below a number.
static void undo_below(struct ga_memory_graph_start *s, uint32_t devices) {
    for (uint32_t d = 0; d < devices; d++)
        if (s->acquisitions[d].bytes)
            ga_memory_pool_undo(&s->acquisitions[d]);
}

// Acquires the bytes of a launch on one device. False: refused.
static bool acquire_on(struct ga_memory_graph_start *s, uint32_t device) {
    struct ga_memory_acquisition *t = &s->acquisitions[device];
    t->root = s->root;
    t->at = s->at;
    t->kind = GA_MEMORY_GRAPH;
    t->pool = graph_pool(s, device);
    if (!t->pool)
        return false;
    // A launch cannot be undone. Admit the bytes as new memory, unless nothing has changed in the
    // pool since this graph's last launch: the pool then has the memory of that launch, unused.
    bool again = t->bytes == s->exec->own[device] && atomic_load(&s->exec->last_turn[device]) ==
                                                         ga_memory_pool_copy(s->root, t->pool).turn;
    return ga_memory_pool_acquire(t, again ? GA_MEMORY_ACQUIRE_REUSED : GA_MEMORY_ACQUIRE_NEW);
}

bool ga_memory_graph_open(struct ga_memory_graph_start *s, const struct ga_memory_at *at) {
    const struct ga_memory_graph_exec *x = s->exec;
    s->at = *at;
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        s->acquisitions[d] = (struct ga_memory_acquisition){.bytes = x->own[d]};
    for (uint32_t i = 0; i < x->blocks.count; i++)
        if (makes_block(s, &x->blocks.block[i]))
            s->acquisitions[x->blocks.block[i].device].bytes += x->blocks.block[i].bytes;
    for (uint32_t d = 0; d < GA_DEVICES; d++) {
        if (s->acquisitions[d].bytes == 0 || acquire_on(s, d))
            continue;
        undo_below(s, d);
        return false;
    }
    return true;
}

// Inserts the entry of a block. If there is no memory for the entry, the library cannot recognise
// the block's free later. So its bytes no longer count as live. They stay charged as unused bytes
// of the pool while readings show that the pool has them.
static void insert_block(const struct ga_memory_acquisition *t,
                         const struct ga_memory_graph_block *b) {
    const struct ga_entry lost = {
        .bytes = b->bytes, .context = (uint64_t)(uintptr_t)t->pool, .tag = t->tag};
    if (!ga_memory_pool_insert(t, b->address, b->bytes))
        ga_memory_pool_freed(t->root, &lost, false);
}

// Inserts a block that a launch made and did not free. *left: remaining bytes that
// ga_memory_graph_open acquired for such blocks on the device. These may be too few: open acquires
// nothing for a block at whose address an earlier block lies, and another thread may have freed
// that block before the launch. In that case acquires the bytes now. If they are refused, the block
// gets no entry, and a reading charges the pool with it as unused bytes.
static void insert_left(struct ga_memory_graph_start *s, const struct ga_memory_graph_block *b,
                        uint64_t *left) {
    struct ga_memory_acquisition *opened = &s->acquisitions[b->device];
    struct ga_memory_acquisition now = {.root = s->root, .at = s->at, .bytes = b->bytes};
    if (*left >= b->bytes) {
        *left -= b->bytes;
        insert_block(opened, b);
        return;
    }
    now.kind = GA_MEMORY_GRAPH;
    now.pool = graph_pool(s, b->device);
    if (!now.pool || !ga_memory_pool_acquire(&now, GA_MEMORY_ACQUIRE_NOW))
        return;
    insert_block(&now, b);
    ga_memory_pool_commit(&now);
}

// Finishes a launch. Blocks that the graph does not free become the program's. The following bytes
// are pending until the stream has executed the launch: blocks that the graph only frees, and
// blocks that it allocates and frees.
static void finish_launch(struct ga_memory_graph_start *s) {
    struct ga_memory_graph_exec *x = s->exec;
    uint64_t left[GA_DEVICES];
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        left[d] = s->acquisitions[d].bytes - x->own[d];
    for (uint32_t i = 0; i < x->blocks.count; i++) {
        const struct ga_memory_graph_block *b = &x->blocks.block[i];
        struct ga_entry e;
        if (makes_block(s, b))
            insert_left(s, b, &left[b->device]);
        else if (b->bytes == 0 && ga_memory_pool_remove(s->root, b->address, &e))
            ga_memory_pending_add(s->root, &e, &s->at);
    }
    for (uint32_t d = 0; d < GA_DEVICES; d++) {
        struct ga_memory_acquisition *t = &s->acquisitions[d];
        if (t->bytes == 0)
            continue;
        if (x->own[d])
            ga_memory_pending_add_bytes(s->root, t->pool, x->own[d], t->tag, &s->at);
        ga_memory_pool_commit(t); // false: uncharged until a later reading finds credit for it
        atomic_store(&x->last_turn[d], ga_memory_pool_copy(s->root, t->pool).turn);
    }
}

void ga_memory_graph_finish(struct ga_memory_graph_start *s, bool launched) {
    if (launched)
        finish_launch(s);
    else
        undo_below(s, GA_DEVICES);
}

bool ga_memory_graph_any(struct ga_root *root) {
    return atomic_load(&ga_memory_of(root)->graphs.execs.most) != 0;
}

bool ga_memory_graph_find(struct ga_memory_graph_start *s, struct ga_root *root, void *handle) {
    s->root = root;
    s->exec = ga_memory_graph_any(root) ? find_exec(&ga_memory_of(root)->graphs, handle) : NULL;
    return s->exec != NULL;
}

void ga_memory_graph_drop(struct ga_memory_graph_start *s) {
    drop_reference(&ga_memory_of(s->root)->graphs, s->exec);
}

// Making and destroying executable graphs

bool ga_memory_graph_begin(struct ga_memory_graph_making *m,
                           struct ga_memory_graph_blocks *blocks) {
    m->exec = blocks->count ? new_exec(m->root, blocks) : NULL;
    if (blocks->count && !m->exec)
        ga_memory_graph_blocks_drop(blocks);
    return m->exec || blocks->count == 0;
}

void ga_memory_graph_made(struct ga_memory_graph_making *m, void *handle) {
    struct ga_memory_graph_exec *gone = m->exec;
    if (!m->exec)
        return;
    if (handle)
        gone = put_exec(&ga_memory_of(m->root)->graphs, handle, m->exec);
    if (gone)
        drop_reference(&ga_memory_of(m->root)->graphs, gone);
}

struct ga_memory_graph_exec *ga_memory_graph_destroy_begin(struct ga_root *root, void *handle) {
    return remove_exec(&ga_memory_of(root)->graphs, handle);
}

void ga_memory_graph_destroy_end(struct ga_root *root, struct ga_memory_graph_exec *exec,
                                 void *handle, bool ended) {
    struct ga_memory_graphs *g = &ga_memory_of(root)->graphs;
    if (exec && !ended)
        exec = put_exec(g, handle, exec);
    if (exec)
        drop_reference(g, exec);
}

void ga_memory_graph_blocks_drop(struct ga_memory_graph_blocks *blocks) {
    if (blocks->block)
        ga_os_unmap(blocks->block, blocks->size);
    *blocks = (struct ga_memory_graph_blocks){0};
}
