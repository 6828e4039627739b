// SPDX-License-Identifier: Apache-2.0
//
// What the files of the simulated driver share inside one process.
//
// Lock order: drv.lock, then the queues' lock (queue.c), then the shared state's lock. Nobody waits
// for a stream's work while holding drv.lock, because that work may need it.
#ifndef SIMCUDA_DRIVER_H
#define SIMCUDA_DRIVER_H

#include "cuda_abi.h"
#include "sim.h"

enum { MAX_DEV = SIM_MAX_DEVICES };

typedef void (*op_fn)(void *arg); // an operation of a stream

struct chunk;
struct op;
struct pool;
struct span;
struct stream;

struct context {
    CUcontext handle;
    CUdevice dev; // as this program counts
    int phys;     // as the machine counts
    unsigned flags;
    unsigned version; // what cuCtxGetApiVersion answers
    bool primary;
    unsigned uses; // of cuCtxAttach, and the first
    uint64_t id;
    struct stream *legacy;
    struct stream *streams;   // all but the legacy one, guarded by the queues' lock
    _Atomic uint64_t pending; // operations that are queued or run on its streams
    size_t limits[8];
    uint64_t limit_cost[8]; // of each, beyond what every context has
    uint64_t local;         // bytes of local memory, which only grow; guarded by lock
};

struct primary {
    struct context *ctx; // NULL: inactive
    CUcontext handle;    // the same for every life of it
    unsigned refs;
    bool runtime; // one of them is the runtime's
    unsigned flags;
};

// One per process image. All but the first two fields are guarded by lock after cuInit.
struct driver {
    volatile int *alive; // a page that a fork wipes: NULL before cuInit, then 1, and 0 in a child
    _Atomic int ready;
    pthread_mutex_t lock;
    struct sim_state *sim;
    struct sim_proc *me;
    int device_count;
    int phys[MAX_DEV];
    struct primary primary[MAX_DEV];
    uint64_t next_id;
};

extern struct driver drv;

// A point of a capture, as an event keeps it.
struct capture_point {
    uint64_t id; // 0: none
    struct stream *stream;
    uint64_t nodes;
};

// init.c
CUresult drv_check(void);                 // initialised, not forked, not inside a callback
CUresult drv_enter(const char *function); // the same, then injected faults
CUresult drv_unsupported(const char *function);
extern _Thread_local int drv_in_callback;

// Every exported function begins with one of these two.
#define ENTER()                                                                                    \
    do {                                                                                           \
        CUresult enter_rc = drv_enter(__func__);                                                   \
        if (enter_rc)                                                                              \
            return enter_rc;                                                                       \
    } while (0)
#define ENTER_CTX(ctx)                                                                             \
    ENTER();                                                                                       \
    struct context *ctx;                                                                           \
    do {                                                                                           \
        CUresult ctx_rc = ctx_current(&ctx);                                                       \
        if (ctx_rc)                                                                                \
            return ctx_rc;                                                                         \
    } while (0)

// fault.c
CUresult fault_check(const char *function);

// device.c
static inline bool dev_valid(CUdevice d) {
    return d >= 0 && d < drv.device_count;
}
enum { LOCATION_DEVICE = 1, LOCATION_DOMAIN = 6 }; // of CUmemLocationType
static inline bool on_device(const CUmemLocation *l) {
    return l->type == LOCATION_DEVICE || l->type == LOCATION_DOMAIN;
}
// The device that such a place is, or is part of, or −1. A device here has one locality domain,
// the first: the lowest byte of its id is the device, the next the domain.
static inline CUdevice dev_at(const CUmemLocation *l) {
    return on_device(l) && dev_valid(l->id) ? l->id : -1;
}
CUresult dev_lost(int phys); // the code of a lost device, or 0
bool dev_select(struct driver *d);

// handle.c: tables of live objects, under drv.lock.
enum handle_type {
    HANDLE_CONTEXT = 1,
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_POOL,
    HANDLE_MEMORY,
    HANDLE_ARRAY,
    HANDLE_MIPMAP,
    HANDLE_GRAPH,
    HANDLE_EXEC,
    HANDLE_NODE,
    HANDLE_CONDITION,
    HANDLE_GREEN,
    HANDLE_EXTERNAL,
    HANDLE_SEMAPHORE,
    HANDLE_MODULE,
    HANDLE_LIBRARY,
    HANDLE_FUNCTION
};
uintptr_t handle_new(enum handle_type type, void *object);
void handle_restore(enum handle_type type, uintptr_t handle, void *object);
void *handle_get(enum handle_type type, uintptr_t handle);
void handle_end(enum handle_type type, uintptr_t handle);  // no object has it any more
void handle_recycle(uintptr_t handle);                     // and may be used again
void handle_drop(enum handle_type type, uintptr_t handle); // both

// context.c
CUresult ctx_current(struct context **out);
struct context *ctx_by_handle(CUcontext handle); // drv.lock held
bool ctx_lives(const struct context *c);         // the same
// The primary context, retained and released; made if need be, and ended.
CUresult primary_keep(CUdevice dev, struct context **out);
CUresult primary_leave(CUdevice dev);
CUresult primary_of_runtime(CUdevice dev, CUcontext *out);

// table.c
void storage_end(CUcontext context); // calls what was to be called when it ends

// green.c
void green_context_gone(const struct context *ctx); // drv.lock held

// peer.c
void peer_context_gone(const struct context *ctx); // drv.lock held

// stream.c
CUresult stream_create(struct context *ctx, CUstream *out, unsigned flags, int priority,
                       CUgreenCtx green);

// block.c: addresses, under drv.lock.
enum block_kind {
    BLOCK_DEVICE,
    BLOCK_MANAGED,
    BLOCK_ASYNC,
    BLOCK_HOST,
    BLOCK_ARRAY,
    BLOCK_FOREIGN,
    BLOCK_MODULE
};
struct spot { // in a pool that is made of chunks
    struct chunk *chunk;
    uint64_t at;
};
struct block {
    CUdeviceptr base;
    uint64_t size; // 0: the place is free
    uint64_t id;
    CUcontext ctx;
    struct pool *pool;
    struct spot place;
    int phys;
    uint8_t kind;
    bool touched;               // its pages may be real
    bool freeing;               // an asynchronous free is on its way
    bool unborn;                // a graph's address, without memory until the graph is launched
    bool closed_by_handle;      // foreign or a module's: no free ends it
    uint64_t foreign_id;        // foreign, of a pool: as its owner calls it
    struct graph_memory *graph; // the address is kept for it
    unsigned host_flags;
    struct block *next; // in the free list of its class
    struct block *late; // in its pool's list of frees that are on their way
    uint64_t freed_on;  // the stream of such a free
    uint32_t recalls;   // how often such a free was found to be none
    uint32_t launches;  // of a graph that frees it itself, on their way
    struct span *span;
};
bool block_reserve(void); // the address space of all blocks, once
struct block *block_new(uint64_t size);
void block_renew(struct block *b);        // another block from now on, at the same address
struct block *block_find(CUdeviceptr p);  // the live block around p
struct block *block_exact(CUdeviceptr p); // the live block that begins at p
void block_drop(struct block *b);
// Addresses of 32 bits, as the first interface has them: the distance from the lowest one. False:
// it is too far.
bool block_short(CUdeviceptr p, unsigned *out);
CUdeviceptr block_long(unsigned p);
bool block_address(CUdeviceptr p); // in the range that device addresses come from
void block_each(bool (*want)(struct block *, void *), void *arg, void (*act)(struct block *));

// memory.c
CUresult mem_alloc(struct context *ctx, uint64_t size, enum block_kind kind, CUdeviceptr *out);
struct sim_delta mem_cost(uint64_t size); // what a block takes of its device
CUresult mem_free(CUdeviceptr p, bool host);
void mem_free_locked(struct block *b);
void mem_release_context(struct context *ctx); // drv.lock held
void mem_delay(void);

// foreign.c
void foreign_dropped(const struct block *b); // drv.lock held
bool foreign_owner_lives(uint64_t serial);
struct block *foreign_block(struct context *ctx, uint64_t size, int phys); // drv.lock held

// module.c
struct fatbin_wrapper { // as the compiler writes it
    unsigned magic, version;
    const void *data, *more;
};
CUresult module_load_wrapped(uintptr_t *out, const struct fatbin_wrapper *wrapper);
void module_block_gone(const struct block *b);          // drv.lock held
void module_release_context(const struct context *ctx); // drv.lock held

// launch.c: makes sure of local memory, of so many bytes for each thread.
CUresult launch_local(struct context *ctx, uint64_t local);

// ctxquery.c
uint64_t limits_cost(const struct context *ctx);

// host.c
bool host_registered(CUdeviceptr p, uint64_t size);
void host_count(int64_t bytes);                       // more, or less, host memory is page-locked
void host_release_context(const struct context *ctx); // drv.lock held

// graph.c, under drv.lock
struct graph;
struct graph_memory;
struct graph *graph_new(void);
void graph_drop(struct graph *g);
uintptr_t graph_handle(const struct graph *g);
CUresult graph_add_run(struct graph *g, op_fn fn, const void *arg, size_t size);
CUresult graph_add_alloc(struct graph *g, CUdevice dev, uint64_t size, CUdeviceptr *out);
CUresult graph_add_free(struct graph *g, CUdeviceptr p);
void graph_block_freed(struct block *b); // its memory is gone; the address may stay

// capture.c
struct capture;
bool capture_is_on(struct stream *s);
CUresult capture_refuse(struct stream *s); // a call that no capture allows: ends it
CUresult capture_refuse_locked(struct stream *s);
CUresult capture_unsafe(void);               // the same for calls without a stream
CUresult capture_implicit(struct stream *s); // a use of the legacy stream
CUresult capture_implicit_locked(struct stream *s);
// Under drv.lock; a capture that is no longer valid refuses.
CUresult capture_graph(struct stream *s, struct graph **out);
CUresult capture_mark(struct stream *s, struct capture_point *out);
CUresult capture_join(struct stream *s, const struct capture_point *from);
void capture_abandon(struct stream *s);
bool capture_lives(const struct capture_point *p);

// array.c
struct texels { // where an array's bytes lie
    CUdeviceptr base;
    uint64_t pitch, rows, slices;
    unsigned element; // bytes of one with all its channels
};
CUresult array_texels(CUarray array, struct texels *out);

// What is to be known of an array that is made without memory; under drv.lock.
struct sparse {
    CUcontext ctx;
    uint64_t size[3]; // of the first level; [2]: 1 for one of layers
    unsigned layers, levels, element;
    bool layered, whole; // whole: mapped at once
    uint64_t bytes;      // of all of it
};
// A mipmapped array over memory of somebody else's, of so many bytes; its bytes are not here.
CUresult array_foreign(struct context *ctx, uintptr_t *out, const CUDA_ARRAY3D_DESCRIPTOR *d,
                       unsigned levels, uint64_t room);
CUresult array_sparse(uintptr_t handle, bool mipmap, struct sparse *out);

// sparse.c, under drv.lock
void sparse_drop(uintptr_t array);
void sparse_release_context(const struct context *ctx);

// vmm.c, under drv.lock
enum { MEM_TILE_POOL = 1 }; // CU_MEM_CREATE_USAGE_TILE_POOL
struct range {
    CUdeviceptr base;
    uint64_t size;
    int phys;
};
bool vmm_accessible(CUdeviceptr p, uint64_t size);
bool vmm_find(CUdeviceptr p, struct range *out);

// pool.c
CUmemoryPool pool_handle(const struct pool *p);
CUresult pool_free_async(struct context *ctx, CUdeviceptr p, CUstream s);
bool pool_charge_graph(struct block *b);
void pool_recall_locked(struct block *b);    // a free that is on its way is to do nothing
void pool_take_back_locked(struct block *b); // its block is freed: now the pool's to keep or give
void pool_sync_point(int phys);

// queue.c: streams as queues of operations, each with a thread of its own.
struct stream_dep {
    struct stream *on;
    uint64_t seq;
};
// Puts an operation into a stream, and waits for it if told. The argument is copied.
CUresult queue_run(struct context *ctx, CUstream s, op_fn fn, const void *arg, size_t size,
                   bool wait);
// The same, behind a point of another stream; returns the operation's place in *seq.
CUresult queue_put(struct stream *s, op_fn fn, const void *arg, size_t size,
                   const struct stream_dep *after, uint64_t *seq);
// The same in two steps, for who holds a lock that the operation will want.
CUresult queue_add(struct stream *s, op_fn fn, const void *arg, size_t size,
                   const struct stream_dep *after, uint64_t *seq);
void queue_kick(struct stream *s);
CUresult queue_find(struct context *ctx, CUstream s, struct stream **out); // with a reference
void queue_ref(struct stream *s);
void queue_each(struct context *ctx, void (*act)(struct stream *, void *), void *arg);
void queue_unref(struct stream *s);
bool queue_passed(struct stream *s, uint64_t seq);
void queue_wait(struct stream *s, uint64_t seq);
void queue_sync(struct context *ctx, struct stream *s); // all that a synchronise of it waits for
bool queue_idle(struct context *ctx, struct stream *s);
void queue_sync_context(struct context *ctx);
static inline bool queue_context_idle(struct context *ctx) {
    return atomic_load_explicit(&ctx->pending, memory_order_acquire) == 0;
}
void queue_attach_context(struct context *ctx); // drv.lock held, these two
void queue_detach_context(struct context *ctx);
struct stream *queue_new(struct context *ctx, unsigned flags, int priority, bool counted);
void queue_destroy(struct stream *s);

struct stream {
    CUstream handle;
    struct context *ctx;
    unsigned flags;
    int priority;
    bool legacy;
    // Guarded by drv.lock for writing.
    _Atomic(struct capture *) capture;
    uint64_t capture_nodes; // captured on this stream so far
    bool capture_joined;    // no work of it that the capture's origin does not wait for
    bool counted;           // the program made it: it shows in the oracle
    CUgreenCtx green;       // that it was made in, or 0
    bool detached;          // that one is gone
    uint64_t id;
    _Atomic uint32_t refs;
    // Guarded by the queues' lock.
    struct stream *next;
    struct op *head, **tail;
    uint64_t submitted, completed;
    bool dead, running; // to be ended; has a thread
    pthread_cond_t work;
};

// Two exports of one function: with the legacy default stream, and with the thread's own.
static inline CUstream stream_default(CUstream s, CUstream dflt) {
    return s ? s : dflt;
}
#define BOTH(name, suffix, decl, call)                                                             \
    EXPORT CUresult name decl {                                                                    \
        ENTER_CTX(ctx);                                                                            \
        CUstream s = stream_default(hStream, CU_STREAM_LEGACY);                                    \
        return call;                                                                               \
    }                                                                                              \
    EXPORT CUresult name##suffix decl {                                                            \
        ENTER_CTX(ctx);                                                                            \
        CUstream s = stream_default(hStream, CU_STREAM_PER_THREAD);                                \
        return call;                                                                               \
    }
#define BOTH_SYNC(name, suffix, decl, call)                                                        \
    EXPORT CUresult name decl {                                                                    \
        ENTER_CTX(ctx);                                                                            \
        CUstream s = CU_STREAM_LEGACY;                                                             \
        return call;                                                                               \
    }                                                                                              \
    EXPORT CUresult name##suffix decl {                                                            \
        ENTER_CTX(ctx);                                                                            \
        CUstream s = CU_STREAM_PER_THREAD;                                                         \
        return call;                                                                               \
    }

#endif
