// SPDX-License-Identifier: Apache-2.0
//
// Shared by the files of the simulated driver, for one process.
//
// Lock order: drv.lock, then the queues' lock (queue.c), then the shared state's lock. A thread
// that holds drv.lock must not wait for a stream's work, because that work may need drv.lock.
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
    CUdevice dev; // number of the device in this program
    int phys;     // number of the device in the machine
    unsigned flags;
    unsigned version; // result of cuCtxGetApiVersion
    bool primary;
    unsigned uses; // references: one from the start, and one for each cuCtxAttach
    uint64_t id;
    struct stream *legacy;
    struct stream *streams;   // all but the legacy one, guarded by the queues' lock
    _Atomic uint64_t pending; // operations that are queued or run on its streams
    size_t limits[8];
    uint64_t limit_cost[8]; // bytes of each limit beyond the initial size
    uint64_t local;         // bytes of local memory, which only grow; guarded by lock
};

struct primary {
    struct context *ctx; // NULL: inactive
    CUcontext handle;    // keeps its value when the context is made again
    unsigned refs;
    bool runtime; // the runtime has one of the retains
    unsigned flags;
};

// State of the driver in a process image. After cuInit all fields except the first two are guarded
// by lock.
struct driver {
    volatile int *alive; // a page that fork() zeroes: NULL before cuInit, then 1, and 0 in a child
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

// A position in a capture that an event has recorded.
struct capture_point {
    uint64_t id; // 0: none
    struct stream *stream;
    uint64_t nodes;
};

// init.c
CUresult drv_check(void);                 // initialised, not forked, not inside a callback
CUresult drv_enter(const char *function); // drv_check, then injected faults
CUresult drv_unsupported(const char *function);
extern _Thread_local int drv_in_callback;

// Check the state of the driver. Every exported function begins with ENTER or ENTER_CTX.
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
enum { LOCATION_DEVICE = 1, LOCATION_DOMAIN = 6 }; // values of CUmemLocationType
static inline bool on_device(const CUmemLocation *l) {
    return l->type == LOCATION_DEVICE || l->type == LOCATION_DOMAIN;
}
// Returns the device of a location, or of its locality domain; −1: none. A device has one locality
// domain here, the first. The lowest byte of its id is the device, the next byte the domain.
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
void handle_end(enum handle_type type, uintptr_t handle);  // no object has the handle any more
void handle_recycle(uintptr_t handle);                     // the handle may be used again
void handle_drop(enum handle_type type, uintptr_t handle); // handle_end and handle_recycle

// context.c
CUresult ctx_current(struct context **out);
struct context *ctx_by_handle(CUcontext handle); // drv.lock held
bool ctx_lives(const struct context *c);         // the same
// Retain and release the primary context. It is made and ended if needed.
CUresult primary_retain(CUdevice dev, struct context **out);
CUresult primary_leave(CUdevice dev);
CUresult primary_of_runtime(CUdevice dev, CUcontext *out);

// table.c
void storage_end(CUcontext context); // calls the functions that were registered for its end

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
struct chunk_place { // position in a pool of chunks
    struct chunk *chunk;
    uint64_t at;
};
struct block {
    CUdeviceptr base;
    uint64_t size; // 0: the slot is free
    uint64_t id;
    CUcontext ctx;
    struct pool *pool;
    struct chunk_place place;
    int phys;
    uint8_t kind;
    bool touched;               // its pages may be real
    bool freeing;               // an asynchronous free is pending
    bool without_memory;        // address of a graph's memory node; it has memory when the graph is
                                // launched
    bool closed_by_handle;      // of another process or a module: cuMemFree refuses it
    uint64_t foreign_id;        // block of another process's pool: its number there
    struct graph_memory *graph; // the graph that keeps the address
    unsigned host_flags;
    struct block *next;         // in the free list of its class
    struct block *next_pending; // next in its pool's list of pending frees
    uint64_t freed_on;          // stream of the pending free
    uint32_t recalls;           // number of pending frees that were cancelled
    uint32_t launches;          // unfinished launches of a graph that frees the block itself
    struct span *span;
};
bool block_reserve(void); // reserves the address space of all blocks, once
struct block *block_new(uint64_t size);
void block_renew(struct block *b);        // makes a new block at the same address
struct block *block_find(CUdeviceptr p);  // the live block around p
struct block *block_exact(CUdeviceptr p); // the live block that begins at p
void block_drop(struct block *b);
// Converts an address to 32 bits, for the first versions: its distance from the lowest address.
// False: too far.
bool block_short(CUdeviceptr p, unsigned *out);
CUdeviceptr block_long(unsigned p);
bool block_address(CUdeviceptr p); // reports whether it is in the range of device addresses
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
struct fatbin_wrapper { // layout that the compiler writes
    unsigned magic, version;
    const void *data, *more;
};
CUresult module_load_wrapped(uintptr_t *out, const struct fatbin_wrapper *wrapper);
void module_block_gone(const struct block *b);          // drv.lock held
void module_release_context(const struct context *ctx); // drv.lock held

// launch.c: takes local memory, if the context does not have as many bytes for each thread yet.
CUresult launch_local(struct context *ctx, uint64_t local);

// ctxquery.c
uint64_t limits_cost(const struct context *ctx);

// host.c
bool host_registered(CUdeviceptr p, uint64_t size);
void host_count(int64_t bytes);                       // adds to the count of page-locked bytes
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
void graph_block_freed(struct block *b); // its memory was freed; the address may stay

// capture.c
struct capture;
bool capture_is_on(struct stream *s);
CUresult
capture_refuse(struct stream *s); // a call that is forbidden in captures: invalidates the capture
CUresult capture_refuse_locked(struct stream *s);
CUresult capture_unsafe(void);               // the same for calls without a stream
CUresult capture_implicit(struct stream *s); // a call on the legacy stream
CUresult capture_implicit_locked(struct stream *s);
// Returns the graph of a valid capture; under drv.lock.
CUresult capture_graph(struct stream *s, struct graph **out);
CUresult capture_mark(struct stream *s, struct capture_point *out);
CUresult capture_join(struct stream *s, const struct capture_point *from);
void capture_abandon(struct stream *s);
bool capture_lives(const struct capture_point *p);

// array.c
struct texels { // position of an array's bytes
    CUdeviceptr base;
    uint64_t pitch, rows, slices;
    unsigned element; // bytes of an element with all its channels
};
CUresult array_texels(CUarray array, struct texels *out);

// Properties of an array that is made without memory; under drv.lock.
struct sparse {
    CUcontext ctx;
    uint64_t size[3]; // size of the first level; [2] is 1 for layered arrays
    unsigned layers, levels, element;
    bool layered, whole; // whole: mapped at once
    uint64_t bytes;      // bytes of the whole array
};
// Makes a mipmapped array of imported memory, whose bytes are not available here.
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
void pool_recall_locked(struct block *b); // cancels the pending free of a block
void pool_take_back_locked(
    struct block *b); // its block is freed: the pool keeps it or gives it back
void pool_sync_point(int phys);

// queue.c: streams as queues of operations, each with a thread of its own.
struct stream_dep {
    struct stream *on;
    uint64_t seq;
};
// Adds an operation to a stream, and waits for it if wanted. The argument is copied.
CUresult queue_run(struct context *ctx, CUstream s, op_fn fn, const void *arg, size_t size,
                   bool wait);
// Adds an operation that also waits for a position in another stream. *seq becomes its position.
CUresult queue_put(struct stream *s, op_fn fn, const void *arg, size_t size,
                   const struct stream_dep *after, uint64_t *seq);
// queue_add adds an operation, and queue_kick wakes the stream's thread. A caller with a lock that
// the operation needs calls queue_kick after it has released the lock.
CUresult queue_add(struct stream *s, op_fn fn, const void *arg, size_t size,
                   const struct stream_dep *after, uint64_t *seq);
void queue_kick(struct stream *s);
CUresult queue_find(struct context *ctx, CUstream s, struct stream **out); // adds a reference
void queue_ref(struct stream *s);
void queue_each(struct context *ctx, void (*act)(struct stream *, void *), void *arg);
void queue_unref(struct stream *s);
bool queue_passed(struct stream *s, uint64_t seq);
void queue_wait(struct stream *s, uint64_t seq);
void queue_sync(
    struct context *ctx,
    struct stream *s); // waits for all work that a synchronisation of the stream waits for
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
    uint64_t capture_nodes; // number of nodes captured on this stream
    bool capture_joined;    // the capture's origin waits for all its work
    bool counted;           // the program made it, so the oracle counts it
    CUgreenCtx green;       // green context that it was made in, or 0
    bool detached;          // the green context has ended
    uint64_t id;
    _Atomic uint32_t refs;
    // Guarded by the queues' lock.
    struct stream *next;
    struct op *head, **tail;
    uint64_t submitted, completed;
    bool dead, running; // dead: is being ended; running: has a thread
    pthread_cond_t work;
};

// Exports a function twice: once with the legacy default stream, once with the thread's default
// stream.
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
