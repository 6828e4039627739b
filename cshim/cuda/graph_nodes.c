// SPDX-License-Identifier: Apache-2.0
// Reads which addresses a graph and its child graphs allocate and free. graph.c calls it.
#include "cuda/graph_nodes.h"

#include "cuda/device.h"

// Child graphs that are nested deeper than this are not read; the driver does not document a limit.
#define DEPTH 16

// The blocks that were read so far: a hash table by address, with open addressing. At the end the
// used slots are moved to its beginning.
struct reading {
    struct ga_root *root;
    struct ga_memory_graph_block *slot; // address 0: empty
    size_t slots;                       // a power of two, or 0
    uint32_t used;                      // number of slots that are not empty
    bool failed;                        // there was no memory
};

// Returns the slot of an address: the slot that has it, or the empty slot where it belongs.
static struct ga_memory_graph_block *block_at(struct reading *r, uint64_t address) {
    size_t i = (size_t)((address >> 9) * 0x9e3779b97f4a7c15ull >> 20) & (r->slots - 1);
    while (r->slot[i].address && r->slot[i].address != address)
        i = (i + 1) & (r->slots - 1);
    return &r->slot[i];
}

// Doubles the table. False: no memory.
static bool grow(struct reading *r) {
    struct reading more = {.root = r->root, .slots = r->slots ? r->slots * 2 : 64};
    more.slot = ga_os_map(more.slots * sizeof *more.slot);
    if (!more.slot)
        return false;
    for (size_t i = 0; i < r->slots; i++)
        if (r->slot[i].address)
            *block_at(&more, r->slot[i].address) = r->slot[i];
    if (r->slot)
        ga_os_unmap(r->slot, r->slots * sizeof *r->slot);
    r->slot = more.slot;
    r->slots = more.slots;
    return true;
}

// Finds the block at an address, or adds it. NULL: no memory; the reading has failed.
static struct ga_memory_graph_block *find_or_add(struct reading *r, uint64_t address) {
    if (r->used * 2 >= r->slots && !grow(r)) {
        r->failed = true;
        return NULL;
    }
    struct ga_memory_graph_block *b = block_at(r, address);
    if (b->address == 0) {
        b->address = address;
        r->used++;
    }
    return b;
}

static void add_alloc(struct reading *r, ga_node node) {
    struct ga_cu_alloc_node n;
    ga_os_zero(&n, sizeof n);
    if (!GA_ASK(cuGraphMemAllocNodeGetParams, node, &n) || n.address == 0)
        return;
    int device = ga_cuda_device_at(r->root, &n.pool.location);
    struct ga_memory_graph_block *b = device >= 0 ? find_or_add(r, n.address) : NULL;
    if (!b)
        return;
    b->allocs++;
    b->device = (uint32_t)device;
    if (n.bytes > b->bytes)
        b->bytes = n.bytes;
}

static void add_free(struct reading *r, ga_node node) {
    ga_address address = 0;
    if (!GA_ASK(cuGraphMemFreeNodeGetParams, node, &address) || address == 0)
        return;
    struct ga_memory_graph_block *b = find_or_add(r, address);
    if (b)
        b->frees++;
}

static void read_graph(struct reading *r, ga_graph graph, int depth);

static void add_node(struct reading *r, ga_node node, int depth) {
    int type = -1;
    ga_graph child = NULL;
    if (GA_REAL(cuGraphNodeGetType)(node, &type) != GA_CUDA_SUCCESS)
        return;
    if (type == GA_CUDA_NODE_ALLOC)
        add_alloc(r, node);
    else if (type == GA_CUDA_NODE_FREE)
        add_free(r, node);
    else if (type == GA_CUDA_NODE_GRAPH && GA_ASK(cuGraphChildGraphNodeGetGraph, node, &child))
        read_graph(r, child, depth + 1);
}

static void read_graph(struct reading *r, ga_graph graph, int depth) {
    size_t count = 0;
    if (depth > DEPTH || GA_REAL(cuGraphGetNodes)(graph, NULL, &count) != GA_CUDA_SUCCESS ||
        count == 0)
        return;
    size_t room = count;
    ga_node *nodes = ga_os_map(room * sizeof *nodes);
    if (!nodes) {
        r->failed = true;
        return;
    }
    if (GA_REAL(cuGraphGetNodes)(graph, nodes, &count) == GA_CUDA_SUCCESS)
        for (size_t i = 0; i < count && i < room && !r->failed; i++)
            add_node(r, nodes[i], depth);
    ga_os_unmap(nodes, room * sizeof *nodes);
}

bool ga_cuda_graph_blocks_read(struct ga_root *root, ga_graph graph,
                               struct ga_memory_graph_blocks *blocks) {
    struct reading r = {.root = root};
    *blocks = (struct ga_memory_graph_blocks){0};
    // A driver without these functions is too old to have memory nodes.
    if (!GA_REAL(cuGraphGetNodes) || !GA_REAL(cuGraphNodeGetType))
        return true;
    read_graph(&r, graph, 0);
    blocks->block = r.slot;
    blocks->size = r.slots * sizeof *r.slot;
    for (size_t i = 0; i < r.slots; i++)
        if (r.slot[i].address)
            r.slot[blocks->count++] = r.slot[i];
    if (r.failed)
        ga_memory_graph_blocks_drop(blocks);
    return !r.failed;
}
