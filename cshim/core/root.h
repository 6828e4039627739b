// SPDX-License-Identifier: Apache-2.0
// The session root: everything that a process knows, in pages that a forked child
// finds zeroed (MADV_WIPEONFORK), also after a raw clone. All zero means "nothing
// done yet", so a child begins anew at its own first GPU call, whatever its parent
// was in the middle of, and no lock can be inherited in a bad state.
//
// Nothing is ever torn down: at exit the kernel does it, and the daemon sees it.
#ifndef GA_ROOT_H
#define GA_ROOT_H

#include "core/env.h"
#include "core/table.h"
#include "core/wire.h"

#define GA_DEVICES GA_PAGE_SLOTS // that can be arbitrated in one process, numbered by device.c
// Connections to the daemon, so threads that can ask at the same time: as many as the daemon lets
// one session have. Requests may wait for admission on all but four of them.
#define GA_CONNECTIONS 64
#define GA_CONNECTIONS_TO_WAIT (GA_CONNECTIONS - 4)
// Records of threads: so many in the root, and further ones in blocks.
#define GA_THREADS 512
#define GA_THREAD_BLOCK 1024
#define GA_THREAD_BLOCKS 256

// One page with the session that it belongs to. Published as a whole, so that a thread
// never pairs the page of one session with the tag of another. Never freed.
struct ga_view {
    struct ga_wire_page *page;
    uint16_t tag;                     // entries with this tag are charged in this session
    _Atomic uint8_t slot[GA_DEVICES]; // slot + 1 of each device's lease, 0: not attached
};

// A connection. The thread that swapped owner from 0 to its own id owns it, and all that is in it.
struct ga_connection {
    _Atomic uint32_t owner; // its thread's id; 0: none
    _Atomic int fd_plus_1;
    _Atomic uint32_t epoch; // ga_root.link_epoch when it was opened
    struct ga_os_identity id;
};

// What is known of a device. One cache line of what the fast path reads is enough.
struct ga_device {
    _Alignas(64) _Atomic uint32_t known; // 1: uuid is valid
    _Atomic uint32_t refused; // the daemon would not open a lease: link_epoch + 1 of when
    uint8_t uuid[GA_UUID_SIZE];
    _Atomic uint64_t late;    // bytes of pools freed in stream order, not known to be executed
    _Atomic uint64_t kept;    // bytes that pools are charged with beyond these and their blocks
    _Atomic uint64_t debt;    // bytes taken without a daemon, which no daemon was told of yet
    _Atomic uint32_t streams; // that are counted, and no thread's: objects.c
    struct ga_mutex attaching;
};

_Static_assert(sizeof(struct ga_device) == 64, "a cache line; more costs each call");

// A thread that ever made an intercepted call. Written by it alone.
struct ga_thread {
    _Alignas(
        64) _Atomic uint64_t inflight; // bytes in use that are in no table: a call is on its way
    _Atomic uint32_t device;           // of inflight
    _Atomic uint32_t tid;              // 0: free
    _Atomic uint32_t moving;           // between ga_move_begin and ga_move_end
    uint32_t unseen;                   // ga_self.unseen
    uint32_t aside;                    // ga_threads_aside
    uint32_t free;                     // where tid is 0: the next free record + 1
    // Contexts that it asks for, or that the driver makes in a call of it: ga_publish_making.
    _Atomic uint32_t making;
    uint32_t making_on; // the device
};

// A driver that computes on the processor, and the identity of the device on which it is counted.
struct ga_driver {
    _Atomic uint32_t known; // 1: the rest is valid
    uint8_t name[GA_UUID_SIZE];
    uint8_t device[GA_UUID_SIZE];
};
#define GA_DRIVERS 4

// What the daemon last said of a device's memory, and when: budget.c.
struct ga_answer {
    bool known;
    bool limited;
    uint8_t uuid[GA_UUID_SIZE];
    uint32_t link_epoch; // of the link that brought it
    uint32_t slot;       // of the lease there, or GA_NO_SLOT
    struct ga_view *view;
    uint64_t asked; // root.asked then
    uint64_t at_ms;
    uint64_t total, used, room;
    uint64_t word; // the lease's credit word when it was summed up
};

enum ga_link {
    GA_LINK_NONE, // there was never a daemon
    GA_LINK_LIVE, // one has us
    GA_LINK_LOST, // there was one
};

// Grouped by who writes what. What an interface keeps lies behind it: interface.h.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct ga_root {
    _Atomic uint64_t generation; // 0: not initialised (anew)
    _Atomic uint32_t starting;
    _Atomic uint32_t check_pid; // the pid, where the kernel cannot wipe pages; else 0
    _Atomic(struct ga_view *) view;
    _Atomic uint16_t tag; // the tag of what is charged now, with or without a daemon

    _Atomic uint32_t frozen; // no thread may begin to move bytes
    uint32_t reserved;
    uint64_t pad[3];

    // What follows is written now and then, so it begins a cache line of its own.
    // The link to the daemon: session.c
    _Atomic uint32_t link; // enum ga_link
    _Atomic uint32_t link_epoch;
    _Atomic uint32_t on_loss;
    _Atomic uint32_t warned; // the user has had the line about the missing daemon, or about its no
    _Atomic uint32_t told;   // the user of a bare preload has had the one line about refusals
    _Atomic uint32_t told_wait;     // and the one about waiting
    _Atomic uint32_t told_crowded;  // the user was told that a request found no place in the queue
    _Atomic int barred;             // what kept us from a daemon that may be there; 0: nothing
    _Atomic uint64_t retry_at_ms;   // no attempt before
    _Atomic uint64_t mend_at_ms;    // the same, of one on the way
    _Atomic uint32_t hello_refused; // by policy: what it asks for is not to be had now
    _Atomic uint32_t busy;          // there is a daemon, without room for this process now
    struct ga_mutex linking;        // guards what follows, up to next_request; ga_link_lock
    uint64_t hello_request;         // number of the Hello that has no reply yet, or 0
    uint64_t lost_at_ms;
    uint64_t busy_since_ms; // 0: it is not
    uint8_t token[GA_TOKEN_SIZE];
    bool has_token;
    // No new connection can be opened, while some are open: these are shared.
    _Atomic uint32_t walled;
    // The session was opened on it. One of connections gets its descriptor when it needs one.
    struct ga_connection spare;
    // Descriptor of the lease page, for Resume: no connection, but kept as one is.
    struct ga_connection page;
    // To a daemon that does not answer, to see when it does: link.c
    struct ga_connection silent;
    _Atomic uint64_t next_request;
    _Atomic uint64_t asked; // requests that have been answered, but those about memory
    _Atomic uint32_t able;  // GA_ABLE_…: what the daemon says that it is able to
    struct ga_env env;
    struct ga_connection connections[GA_CONNECTIONS];
    _Atomic uint32_t connection_freed;
    _Atomic uint32_t connection_waiters;

    // Threads: root.c
    struct ga_spin threads_lock;
    _Atomic uint32_t threads_used; // records, of which some may be free
    uint32_t threads_free;         // the first free one + 1
    uint32_t threads_fresh;        // registered since it was last asked which have ended
    _Atomic uint32_t threads_numbered;
    _Atomic uint32_t threads_alive;
    _Atomic uint64_t threads_counted_ms;
    struct ga_thread threads[GA_THREADS];
    _Atomic(struct ga_thread *) threads_beyond[GA_THREAD_BLOCKS];
    // Bytes in use that no record tells of: threads had them in flight when they died, so that
    // nothing tells whether the driver has given memory for them; or there was no memory for a
    // record (ga_charge_for_good).
    _Atomic uint64_t stranded[GA_DEVICES];

    // The most of each device that the program itself declares to use, + 1; 0: nothing declared.
    // It holds where no daemon decides.
    _Atomic uint64_t declared[GA_DEVICES];
    struct ga_device devices[GA_DEVICES];
    struct ga_driver drivers[GA_DRIVERS];
    struct ga_spin devices_lock;             // of who numbers a device, or adds a driver
    _Atomic uint32_t slot_scope[GA_DEVICES]; // whose one slot is: GA_SCOPE_…, or 0
    struct ga_spin answers_lock;
    struct ga_answer answers[GA_DEVICES];
    struct ga_table blocks;  // device memory: by address in GA_SPACE_PLAIN, by handle in others
    struct ga_table streams; // by handle
    struct ga_table holds;   // slots of threads: thread_slot.h
    struct ga_table objects; // what threads have made and hold: objects.c
    struct ga_spin objects_lock;
    struct ga_spin holds_lock;     // of who changes one in it
    struct ga_table hosts;         // page-locked host memory by address
    _Atomic uint64_t host_held;    // its bytes: host.c
    _Atomic uint64_t host_max;     // as the daemon said, or GA_NO_LIMIT
    _Atomic uint32_t host_refused; // the user has had a line about it
    // Bytes that pools of stream-ordered memory are charged with: their blocks, and what is late
    // and kept.
    _Atomic uint64_t pooled[GA_DEVICES];
    _Atomic uint64_t returned[GA_DEVICES]; // how often pending bytes came back
    // What the page says beside the number of blocks: publish.c
    _Atomic uint64_t published_ms;
    // Other processes' memory
    _Atomic uint64_t imported[GA_DEVICES];
    _Atomic uint64_t managed[GA_DEVICES]; // bytes of blocks that are managed memory
    _Atomic uint32_t managed_changed;     // how often managed changed
    _Atomic uint32_t imports_unknown;     // imported pieces whose size is not known
    _Atomic uint32_t imports_changed;     // how often imported or imports_unknown changed
    // Contexts that threads ask for, or that the driver makes
    _Atomic uint32_t making[GA_DEVICES];
    _Atomic uint32_t making_changed; // how often
    struct ga_spin imports_lock;
    struct ga_table imports; // by address or handle
    _Atomic uint32_t pools_seen;
    _Atomic uint32_t soft; // some of the charged bytes may not be on the device
    struct ga_spin arena_lock;
    uint8_t *arena;
    size_t arena_left;
};
_Static_assert(offsetof(struct ga_root, link) == 64, "the first line is read, not written");

// With what the interfaces keep, behind it. Whole pages of the largest size there is.
#define GA_ROOT_PAGES ((size_t)0x10000)
#define GA_ROOT_STATES ((size_t)192 << 10)
#define GA_ROOT_SIZE                                                                               \
    ((sizeof(struct ga_root) + GA_ROOT_STATES + GA_ROOT_PAGES - 1) & ~(GA_ROOT_PAGES - 1))

// What an interface keeps: it says at which place of what is there for all of them, and
// hook/interfaces.c sees that no two say the same.
static inline void *ga_root_state(struct ga_root *root, size_t place) {
    return (uint8_t *)(root + 1) + place;
}

// What a thread remembers. Valid only while generation is the root's.
struct ga_self {
    uint64_t generation;
    uint64_t context; // handle of the context that device and serial were found for
    uint64_t serial;  // number of the context in which its memory is charged
    uint64_t context_epoch;
    uint32_t device;
    uint32_t inside; // 1: in a critical section; a signal handler must not enter
    uint32_t away;   // depth of longer sections, which take a mutex: ga_self_go_away
    uint64_t away_generation;
    uint32_t number; // of the thread: from 1 on, given to no other of this process
    uint32_t tid;
    uint32_t holds;   // devices of which it may use something (thread_slot.h), a bit each
    uint16_t watched; // the end of the thread will be noticed
    struct ga_thread *thread;
    bool unseen;          // a thread of this library's own, which counts for nothing
    bool stands_for;      // context stands for another one, in which its memory is charged
    uint64_t credit_seen; // what this thread last left in a credit word: a guess
};
extern __thread struct ga_self ga_self __attribute__((tls_model("initial-exec")));
extern struct ga_root *_Atomic ga_root_pointer;

// The slow way into ga_root_get: first call of a process, of a child, of a thread.
struct ga_root *ga_root_enter(void);

// The root, with the calling thread known to it. NULL: the call comes from a signal handler that
// interrupted a critical section of this thread, or there is no memory for a record of the thread.
// Then what it takes cannot be accounted for: ga_root_denies says whether it may.
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

// Whether what cannot be accounted for is refused: where a session is there or a loss is closed,
// and where the program has declared a limit itself. Frees never are.
bool ga_root_denies(void);

// A thread's record, from 0 to below threads_used.
static inline struct ga_thread *ga_threads_at(struct ga_root *root, uint32_t i) {
    if (i < GA_THREADS)
        return &root->threads[i];
    i -= GA_THREADS;
    return atomic_load_explicit(&root->threads_beyond[i / GA_THREAD_BLOCK], memory_order_acquire) +
           i % GA_THREAD_BLOCK;
}

// Bytes freed in stream order that have not come back.
static inline uint64_t ga_root_pending(struct ga_root *root, uint32_t device) {
    return atomic_load(&root->devices[device].late) + atomic_load(&root->devices[device].kept);
}

// Memory that lives as long as the process and that a forked child does not share; zeroed.
void *ga_root_alloc(struct ga_root *root, size_t size);

// Brackets what takes a spin lock, for ga_root_get's sake. Does not nest.
static inline void ga_self_enter(void) {
    ga_self.inside = 1;
    atomic_signal_fence(memory_order_seq_cst);
}
static inline void ga_self_leave(void) {
    atomic_signal_fence(memory_order_seq_cst);
    ga_self.inside = 0;
}

// A spin lock in such brackets.
static inline void ga_self_lock(struct ga_spin *lock) {
    ga_self_enter();
    ga_spin_lock(lock);
}
static inline void ga_self_unlock(struct ga_spin *lock) {
    ga_spin_unlock(lock);
    ga_self_leave();
}

// What is done to a table in such brackets.
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

// Brackets what takes a mutex that is no more to be had by a signal handler that interrupts its
// holder: the handler's own calls find no root meanwhile. Nests. May contain the brackets above.
static inline void ga_self_go_away(void) {
    if (ga_self.away++ > 0)
        return;
    ga_self.away_generation = ga_self.generation;
    atomic_signal_fence(memory_order_seq_cst);
    ga_self.generation = 0;
    atomic_signal_fence(memory_order_seq_cst);
}
static inline void ga_self_come_back(void) {
    atomic_signal_fence(memory_order_seq_cst);
    if (ga_self.away > 0 && --ga_self.away == 0)
        ga_self.generation = ga_self.away_generation;
}

// Brackets a step that moves bytes from one of the places where they are counted (credit word,
// table, inflight, pooled) to another, or counts objects (objects.h), so that ga_threads_freeze
// finds each in one place.
// Short: no driver call and no wait inside. Costs plain stores only: the freezing side pays.
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
// Adds to what the thread has on its way; inside a move.
static inline void ga_inflight_add(uint32_t device, uint64_t bytes) {
    struct ga_thread *t = ga_self.thread;
    if (GA_UNLIKELY(t == NULL))
        return;
    uint64_t now = atomic_load_explicit(&t->inflight, memory_order_relaxed);
    atomic_store_explicit(&t->device, device, memory_order_relaxed);
    atomic_store_explicit(&t->inflight, now + bytes, memory_order_relaxed);
}

// Stops all moves, and waits until those under way are done (not for ever: a thread may have been
// killed in one). The caller holds root->linking.
void ga_threads_freeze(struct ga_root *root);
void ga_threads_thaw(struct ga_root *root);

// Says in the page how many threads there are, before one asks (deadlock detection). True: some
// have ended.
bool ga_threads_publish(struct ga_root *root);

// The calling thread waits for another one of its process, which may wait for the daemon: the two
// count as one there.
void ga_threads_aside(struct ga_root *root, bool aside);

#endif
