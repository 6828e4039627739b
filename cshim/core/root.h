// SPDX-License-Identifier: Apache-2.0
// The root: the state of the library in a process. It lies in pages that a forked child finds
// zeroed (MADV_WIPEONFORK), also after a raw clone. All zero means that nothing has happened yet.
// So a child starts from scratch at its first GPU call, and inherits no lock in a bad state.
//
// All packages use this file; root.c has the rest. Comments of ga_root say which lock guards a
// field; most fields are atomic. Bytes move between counters only between ga_move_begin and
// ga_move_end.
//
// The root is never torn down: the kernel ends the process, and the daemon notices.
#ifndef GA_ROOT_H
#define GA_ROOT_H

#include "core/env.h"
#include "core/table.h"
#include "core/wire.h"

#define GA_DEVICES GA_PAGE_SLOTS // most arbitrated devices in a process; device.c numbers them
// Connections to the daemon, so also threads that can send requests at once: the daemon's limit for
// one session. Requests may wait for admission on all but four of them.
#define GA_CONNECTIONS 64
#define GA_CONNECTIONS_TO_WAIT (GA_CONNECTIONS - 4)
// Records of threads: the first GA_THREADS lie in the root, further ones in blocks.
#define GA_THREADS 512
#define GA_THREAD_BLOCK 1024
#define GA_THREAD_BLOCKS 256

// Lease page and the session that it belongs to. One pointer publishes both, so that a thread never
// combines the page of one session with the tag of another. Views are never freed.
struct ga_view {
    struct ga_wire_page *page;
    uint16_t tag;                     // entries with this tag are charged in this session
    _Atomic uint8_t slot[GA_DEVICES]; // slot + 1 of each device's lease; 0: not attached
};

// Connection to the daemon. The thread that swapped owner from 0 to its own ID owns all fields.
struct ga_connection {
    _Atomic uint32_t owner; // ID of the owning thread; 0: none
    // descriptor + 1; 0: none
    _Atomic int fd_plus_1;
    _Atomic uint32_t epoch; // ga_root.link_epoch when it was opened; 0: it is still being opened
    struct ga_os_identity id;
};

// State of a device. It fits into one cache line, because the fast path reads it.
struct ga_device {
    _Alignas(64) _Atomic uint32_t known; // 1: uuid is valid
    // link_epoch + 1 of the link on which the daemon refused the lease; 0: not refused
    _Atomic uint32_t refused;
    uint8_t uuid[GA_UUID_SIZE];
    _Atomic uint64_t unexecuted;  // bytes of stream-ordered frees not known to be done
    _Atomic uint64_t pool_unused; // bytes charged to pools beyond their blocks and unexecuted frees
    _Atomic uint64_t debt;        // bytes acquired without a daemon and not reported to one yet
    _Atomic uint32_t streams;     // number of streams that belong to no thread: objects.c
    struct ga_mutex attaching;
};

_Static_assert(sizeof(struct ga_device) == 64, "a cache line; more costs each call");

// Record of a thread that has made an intercepted call. Only that thread writes it, except for
// free.
struct ga_thread {
    _Alignas(64) _Atomic uint64_t
        inflight;            // bytes in use that are in no table, because a call is under way
    _Atomic uint32_t device; // device of inflight
    _Atomic uint32_t tid;    // thread ID; 0: the record is unused
    _Atomic uint32_t moving; // 1: between ga_move_begin and ga_move_end
    uint32_t internal;       // ga_self.internal
    uint32_t dependent;      // ga_threads_set_dependent
    uint32_t free;           // if tid is 0: next unused record + 1
    // Contexts that the thread requests, or that the driver makes in its call:
    // ga_publish_context_begin.
    _Atomic uint32_t making;
    uint32_t making_on; // device of making
};

// Driver that computes on the processor, and the identity of the device on which it is counted.
struct ga_driver {
    _Atomic uint32_t known; // 1: the other fields are valid
    uint8_t name[GA_UUID_SIZE];
    uint8_t device[GA_UUID_SIZE];
};
#define GA_DRIVERS 4

// The daemon's last answer about a device's memory: budget.c.
struct ga_answer {
    bool known;
    bool limited;
    uint8_t uuid[GA_UUID_SIZE];
    uint32_t link_epoch; // epoch of the link on which it came
    uint32_t slot;       // slot of the lease; GA_NO_SLOT: none
    struct ga_view *view;
    uint64_t asked; // value of ga_root.asked before the question was sent
    uint64_t at_ms;
    uint64_t total, used, room;
    uint64_t word; // the lease's credit word from which the daemon computed total, used and room
};

enum ga_link {
    GA_LINK_NONE, // no daemon was found yet
    GA_LINK_LIVE, // a daemon has a session of this process
    GA_LINK_LOST, // the daemon is gone
};

// The fields are grouped by their writers. The state of the interfaces lies behind the root
// (interface.h).
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct ga_root {
    _Atomic uint64_t generation; // number of this root; 0: not initialised
    _Atomic uint32_t starting;
    _Atomic uint32_t check_pid; // process ID, if the kernel cannot wipe pages; else 0
    _Atomic(struct ga_view *) view;
    _Atomic uint16_t tag; // tag of what is charged now, with or without a daemon

    _Atomic uint32_t frozen; // 1: no thread may begin to move bytes
    uint32_t reserved;
    uint64_t pad[3];

    // The following fields are written sometimes, so they begin a new cache line.
    //
    // Link to the daemon: session.c
    _Atomic uint32_t link; // enum ga_link
    _Atomic uint32_t link_epoch;
    _Atomic uint32_t on_loss;
    _Atomic uint32_t warned; // 1: the user was told that there is no daemon, or that it refuses
    _Atomic uint32_t refusal_reported; // 1: the user of a bare preload was told of a refusal
    _Atomic uint32_t wait_reported;    // 1: that user was told of a wait
    // 1: the user was told that a request found no place in the queue
    _Atomic uint32_t crowded_reported;
    _Atomic int connect_error;      // errno of the last failed connect that a running daemon may
                                    // explain; 0: none
    _Atomic uint64_t retry_at_ms;   // no attempt to connect before this time
    _Atomic uint64_t reopen_at_ms;  // no attempt by a thread that frees memory before this time
    _Atomic uint32_t hello_refused; // 1: the daemon refused the session by policy
    _Atomic uint32_t busy;          // 1: the daemon has no room for this process now
    struct ga_mutex linking;        // guards the fields from here to next_request; ga_link_lock
    uint64_t hello_request;         // number of the Hello that has no reply yet; 0: none
    uint64_t lost_at_ms;
    uint64_t busy_since_ms; // 0: it is not busy
    uint8_t token[GA_TOKEN_SIZE];
    bool has_token;
    // 1: no new connection can be opened, and threads share the open ones
    _Atomic uint32_t connect_blocked;
    // Connection on which the session was opened. Its descriptor moves to the first of connections
    // that needs one.
    struct ga_connection spare;
    // Descriptor of the lease page, for Resume. It is not a connection, but is handled like one.
    struct ga_connection page;
    // Connection to a daemon that does not answer: link.c
    struct ga_connection silent;
    _Atomic uint64_t next_request;
    _Atomic uint64_t asked; // number of answered requests, except queries about memory
    _Atomic uint32_t able;  // GA_ABLE_…: what the daemon supports
    struct ga_env env;
    struct ga_connection connections[GA_CONNECTIONS];
    _Atomic uint32_t connection_freed;
    _Atomic uint32_t connection_waiters;

    // Threads: root.c
    struct ga_spin threads_lock;
    _Atomic uint32_t threads_used; // number of records, some of which may be unused
    uint32_t threads_free;         // first unused record + 1; 0: none
    uint32_t threads_fresh;        // records taken since the last search for ended threads
    _Atomic uint32_t threads_numbered;
    _Atomic uint32_t threads_alive;
    _Atomic uint64_t threads_counted_ms;
    struct ga_thread threads[GA_THREADS];
    _Atomic(struct ga_thread *) threads_beyond[GA_THREAD_BLOCKS];
    // Bytes in use without a record. A thread died with them in flight, so it is not known whether
    // the driver has given memory for them; or there was no memory for a record
    // (ga_charge_for_good).
    _Atomic uint64_t stranded[GA_DEVICES];

    // Most bytes that the program's environment allows of each device, + 1; 0: no limit. It applies
    // while no daemon decides.
    _Atomic uint64_t declared[GA_DEVICES];
    struct ga_device devices[GA_DEVICES];
    struct ga_driver drivers[GA_DRIVERS];
    struct ga_spin devices_lock; // guards the numbering of devices and the adding of drivers
    _Atomic uint32_t slot_scope[GA_DEVICES]; // GA_SCOPE_…: who owns one slot; 0: not known
    struct ga_spin answers_lock;
    struct ga_answer answers[GA_DEVICES];
    struct ga_table blocks;  // device memory: by address in GA_SPACE_PLAIN, by handle in others
    struct ga_table streams; // streams by handle
    struct ga_table thread_slots; // slots of threads: thread_slot.h
    struct ga_table objects;      // objects by thread: objects.c
    struct ga_spin objects_lock;
    struct ga_spin thread_slots_lock; // guards changes of thread_slots
    struct ga_table hosts;            // page-locked host memory by address
    _Atomic uint64_t host_held;       // bytes of hosts: host.c
    _Atomic uint64_t host_max;        // limit from the daemon in bytes, or GA_NO_LIMIT
    _Atomic uint32_t host_refused;    // 1: the user was told of a refusal
    // Bytes charged to pools of stream-ordered memory: their blocks, unexecuted frees and unused
    // bytes.
    _Atomic uint64_t pooled[GA_DEVICES];
    _Atomic uint64_t returned[GA_DEVICES]; // number of times that pending bytes came back
    // Published figures, besides the number of blocks: publish.c
    _Atomic uint64_t published_ms;
    // Bytes of other processes' memory that this process has opened.
    _Atomic uint64_t imported[GA_DEVICES];
    _Atomic uint64_t managed[GA_DEVICES]; // bytes of blocks that are managed memory
    _Atomic uint32_t managed_changed;     // how often managed changed
    _Atomic uint32_t imports_unknown;     // imported pieces whose size is not known
    _Atomic uint32_t imports_changed;     // how often imported or imports_unknown changed
    // Contexts that threads request, or that the driver makes.
    _Atomic uint32_t making[GA_DEVICES];
    _Atomic uint32_t making_changed; // how often making changed
    struct ga_spin imports_lock;
    struct ga_table imports; // imports by address or handle
    _Atomic uint32_t pools_seen;
    _Atomic uint32_t soft; // 1: some charged bytes may not be on the device
    struct ga_spin arena_lock;
    uint8_t *arena;
    size_t arena_left;
};
_Static_assert(offsetof(struct ga_root, link) == 64, "the first line is read, not written");

// Size of the root with the state of the interfaces, in whole pages of the largest page size.
#define GA_ROOT_PAGES ((size_t)0x10000)
#define GA_ROOT_STATES ((size_t)192 << 10)
#define GA_ROOT_SIZE                                                                               \
    ((sizeof(struct ga_root) + GA_ROOT_STATES + GA_ROOT_PAGES - 1) & ~(GA_ROOT_PAGES - 1))

// Returns the state of an interface at an offset behind the root. Each interface has its own
// offset; hook/interfaces.c checks that they do not overlap.
static inline void *ga_root_state(struct ga_root *root, size_t place) {
    return (uint8_t *)(root + 1) + place;
}

// State of the calling thread. Valid only while generation is that of the root.
struct ga_self {
    uint64_t generation;
    uint64_t context; // handle of the context that device and serial belong to
    uint64_t serial;  // serial number of the context that its memory is charged in
    uint64_t context_epoch;
    uint32_t device;
    uint32_t inside;      // 1: in a critical section, in which a signal handler must get no root
    uint32_t mutex_depth; // depth of sections that take a mutex: ga_self_enter_mutex
    uint64_t mutex_generation;
    uint32_t number; // number of the thread, from 1 on, never used again in this process
    uint32_t tid;
    // One bit for each device. refused: the last request of the thread for memory there was
    // refused. granted: has at most one bit, that of the thread's last grant if it followed a
    // refusal.
    uint32_t refused, granted;
    uint32_t used_slots; // bit for each device on which it may have a use (thread_slot.h)
    uint16_t watched;    // 1: the library notices when the thread ends
    struct ga_thread *thread;
    bool internal;        // true: a thread of this library, which counts for nothing
    bool stands_for;      // true: memory of context is charged in another context
    uint64_t credit_seen; // last value that this thread wrote to a credit word: a guess
};
extern __thread struct ga_self ga_self __attribute__((tls_model("initial-exec")));
extern struct ga_root *_Atomic ga_root_pointer;

// Slow path of ga_root_get: for the first call of a process, a child or a thread.
struct ga_root *ga_root_enter(void);

// Notes that the calling thread was granted memory of a device. This ends a burst of refusals.
static inline void ga_self_grant(uint32_t device) {
    if (GA_UNLIKELY((ga_self.refused | ga_self.granted) != 0)) {
        ga_self.granted = ga_self.refused & 1u << device;
        ga_self.refused &= ~(1u << device);
    }
}
// Takes the last grant back, because the driver had no memory for it: the burst that it ended goes
// on.
static inline void ga_self_take_back(uint32_t device) {
    ga_self.refused |= ga_self.granted & 1u << device;
}

// Returns the root, and registers the calling thread if needed. NULL: the caller is a signal
// handler that interrupted a critical section of this thread, or there is no memory for a thread's
// record. Memory cannot be accounted for then: ga_root_denies says whether it must be refused.
static inline struct ga_root *ga_root_get(void) {
    struct ga_root *root = atomic_load_explicit(&ga_root_pointer, memory_order_acquire);
    if (GA_LIKELY(root != NULL)) {
        uint64_t generation = atomic_load_explicit(&root->generation, memory_order_acquire);
        if (GA_LIKELY(ga_self.generation == generation && generation != 0 && ga_self.inside == 0 &&
                      root->check_pid == 0))
            return root;
    }
    return ga_root_enter();
}

// Reports whether memory that cannot be accounted for must be refused: if there is a session, if
// the policy is closed, or if the environment sets a limit. Frees are never refused.
bool ga_root_denies(void);

// Returns the record of a thread; i is below threads_used.
static inline struct ga_thread *ga_threads_at(struct ga_root *root, uint32_t i) {
    if (i < GA_THREADS)
        return &root->threads[i];
    i -= GA_THREADS;
    return atomic_load_explicit(&root->threads_beyond[i / GA_THREAD_BLOCK], memory_order_acquire) +
           i % GA_THREAD_BLOCK;
}

// Returns the pending bytes of a device: freed in stream order, and not come back yet.
static inline uint64_t ga_root_pending(struct ga_root *root, uint32_t device) {
    return atomic_load(&root->devices[device].unexecuted) +
           atomic_load(&root->devices[device].pool_unused);
}

// Returns zeroed memory that lives as long as the process, and is wiped on fork. NULL: no memory.
void *ga_root_alloc(struct ga_root *root, size_t size);

// Brackets a section that holds a spin lock, so that ga_root_get fails in a signal handler. Does
// not nest.
static inline void ga_self_enter(void) {
    ga_self.inside = 1;
    atomic_signal_fence(memory_order_seq_cst);
}
static inline void ga_self_leave(void) {
    atomic_signal_fence(memory_order_seq_cst);
    ga_self.inside = 0;
}

// Locks and unlocks a spin lock inside such brackets.
static inline void ga_self_lock(struct ga_spin *lock) {
    ga_self_enter();
    ga_spin_lock(lock);
}
static inline void ga_self_unlock(struct ga_spin *lock) {
    ga_spin_unlock(lock);
    ga_self_leave();
}

// Table operations inside such brackets.
static inline bool ga_self_put(struct ga_table *table, const struct ga_entry *entry,
                               struct ga_entry *old) {
    ga_self_enter();
    bool put = ga_table_put(table, entry, old);
    ga_self_leave();
    return put;
}
static inline bool ga_self_remove_key(struct ga_table *table, struct ga_key key,
                                      struct ga_entry *entry) {
    ga_self_enter();
    bool found = ga_table_remove_key(table, key, entry);
    ga_self_leave();
    return found;
}
static inline bool ga_self_find_key(struct ga_table *table, struct ga_key key,
                                    struct ga_entry *entry) {
    ga_self_enter();
    bool found = ga_table_find_key(table, key, entry);
    ga_self_leave();
    return found;
}
static inline bool ga_self_remove(struct ga_table *table, uint64_t number, struct ga_entry *entry) {
    return ga_self_remove_key(table, (struct ga_key){number, GA_SPACE_PLAIN}, entry);
}
static inline bool ga_self_find(struct ga_table *table, uint64_t number, struct ga_entry *entry) {
    return ga_self_find_key(table, (struct ga_key){number, GA_SPACE_PLAIN}, entry);
}
static inline struct ga_walk ga_self_walk(struct ga_table *table) {
    ga_self_enter();
    return ga_table_walk(table);
}
static inline bool ga_self_next(struct ga_walk *walk, struct ga_entry *entry) {
    bool more = ga_table_next(walk, entry);
    if (!more)
        ga_self_leave();
    return more;
}

// Brackets a section that holds a mutex which an interrupting signal handler must not want: the
// handler's own calls find no root. Nests. May contain the brackets above.
static inline void ga_self_enter_mutex(void) {
    if (ga_self.mutex_depth++ > 0)
        return;
    ga_self.mutex_generation = ga_self.generation;
    atomic_signal_fence(memory_order_seq_cst);
    ga_self.generation = 0;
    atomic_signal_fence(memory_order_seq_cst);
}
static inline void ga_self_leave_mutex(void) {
    atomic_signal_fence(memory_order_seq_cst);
    if (ga_self.mutex_depth > 0 && --ga_self.mutex_depth == 0)
        ga_self.generation = ga_self.mutex_generation;
}

// Brackets a step that moves bytes from one counter (credit word, table, inflight, pooled) to
// another, or counts objects (objects.h). So ga_threads_freeze finds each byte in exactly one
// counter. The step must be short, without driver calls and waits. It costs plain stores only: the
// freezing thread pays.
void ga_move_wait(struct ga_root *root, struct ga_thread *thread);
static inline void ga_move_begin(struct ga_root *root) {
    struct ga_thread *t = ga_self.thread;
    ga_self_enter();
    if (GA_LIKELY(t != NULL)) {
        atomic_store_explicit(&t->moving, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
        if (GA_UNLIKELY(atomic_load_explicit(&root->frozen, memory_order_acquire)))
            ga_move_wait(root, t);
    }
}
static inline void ga_move_end(void) {
    struct ga_thread *t = ga_self.thread;
    if (GA_LIKELY(t != NULL))
        atomic_store_explicit(&t->moving, 0, memory_order_release);
    ga_self_leave();
}
// Adds to the calling thread's bytes in flight. Must be called between ga_move_begin and
// ga_move_end.
static inline void ga_inflight_add(uint32_t device, uint64_t bytes) {
    struct ga_thread *t = ga_self.thread;
    if (GA_UNLIKELY(t == NULL))
        return;
    uint64_t now = atomic_load_explicit(&t->inflight, memory_order_relaxed);
    atomic_store_explicit(&t->device, device, memory_order_relaxed);
    atomic_store_explicit(&t->inflight, now + bytes, memory_order_relaxed);
}

// Stops all moves, and waits until those under way have ended. The wait is bounded, because a
// thread may have been killed in a move. The caller holds root->linking.
void ga_threads_freeze(struct ga_root *root);
void ga_threads_thaw(struct ga_root *root);

// Writes the number of threads to the page, for the daemon's deadlock detection, before a thread
// waits. True: some threads have ended.
bool ga_threads_publish(struct ga_root *root);

// Marks the calling thread as waiting for another thread of its process, which may wait for the
// daemon. Deadlock detection then counts both as one.
void ga_threads_set_dependent(struct ga_root *root, bool dependent);

#endif
