// SPDX-License-Identifier: Apache-2.0
// The root's memory, the records of threads, and the freezing of moves.
#include "core/root.h"

#include "core/inherit.h"
#include "core/log.h"

__thread struct ga_self ga_self __attribute__((tls_model("initial-exec")));
struct ga_root *_Atomic ga_root_pointer;

// Generation of the last root. It lies outside of the wiped pages, so a child's generation differs
// from every value that its copied thread-local memory can hold.
static _Atomic uint64_t last_generation;

// Memory of the root, inside the library, so that it exists even if the process cannot map more
// memory. Fork wipes its pages. Untouched pages cost nothing.
static uint8_t root_memory[GA_ROOT_SIZE + GA_ROOT_PAGES];

// Sets the root pointer. Several threads may run this at once, with one result.
static struct ga_root *make(void) {
    uintptr_t at = ((uintptr_t)root_memory + GA_ROOT_PAGES - 1) & ~(uintptr_t)(GA_ROOT_PAGES - 1);
    struct ga_root *root = (struct ga_root *)at;
    if (!ga_os_wipe_on_fork(root, GA_ROOT_SIZE))
        atomic_store(&root->check_pid, (uint32_t)ga_os_pid());
    atomic_store(&ga_root_pointer, root);
    return root;
}

// Wipes the root in a forked child if the kernel cannot do so: a changed PID shows the child. On
// such kernels each intercepted call costs a system call.
static void wipe_by_hand(struct ga_root *root) {
    uint32_t pid = (uint32_t)ga_os_pid();
    uint32_t seen = atomic_load(&root->check_pid);
    if (seen == 0 || seen == pid)
        return;
    ga_os_zero(root, GA_ROOT_SIZE);
    atomic_store(&root->check_pid, pid);
}

static void start(struct ga_root *root) {
    uint32_t idle = 0;
    if (atomic_compare_exchange_strong(&root->starting, &idle, 1)) {
        ga_env_read(&root->env);
        root->on_loss = root->env.loss_closed ? GA_LOSS_CLOSED : GA_LOSS_OPEN;
        atomic_store(&root->host_max, GA_NO_LIMIT);
        if (atomic_load(&last_generation) != 0)
            ga_inherit_close();
        atomic_store(&root->tag, 1);
        atomic_store_explicit(&root->generation, atomic_fetch_add(&last_generation, 1) + 1,
                              memory_order_release);
        return;
    }
    for (int spins = 0; atomic_load(&root->generation) == 0; spins++) {
        // A signal handler that interrupted the starting thread also leaves here.
        if (spins > 2000)
            return;
        ga_os_sleep_us(50);
    }
}

// Returns memory in whole pages, wiped on fork.
static void *alloc_pages(size_t size) {
    size = (size + GA_ROOT_PAGES - 1) & ~(GA_ROOT_PAGES - 1);
    void *own = ga_os_map(size);
    if (own)
        ga_os_wipe_on_fork(own, size);
    return own;
}

// Frees the record of a thread that has ended. The caller holds threads_lock.
static void free_record(struct ga_root *root, uint32_t i) {
    struct ga_thread *t = ga_threads_at(root, i);
    uint64_t inflight = atomic_load(&t->inflight);
    if (inflight != 0)
        atomic_fetch_add(&root->stranded[atomic_load(&t->device)], inflight);
    if (atomic_load(&t->making)) {
        atomic_fetch_sub(&root->making[t->making_on], atomic_exchange(&t->making, 0));
        atomic_fetch_add(&root->making_changed, 1);
    }
    atomic_store(&t->inflight, 0);
    atomic_store(&t->moving, 0);
    atomic_store(&t->tid, 0);
    t->free = root->threads_free;
    root->threads_free = i + 1;
}

// Asks the kernel which threads have ended, and frees their records. True: some have. The caller
// holds threads_lock.
static bool find_ended(struct ga_root *root) {
    int pid = ga_os_pid();
    bool ended = false;
    uint32_t alive = 0;
    root->threads_fresh = 0;
    for (uint32_t i = 0; i < atomic_load(&root->threads_used); i++) {
        struct ga_thread *t = ga_threads_at(root, i);
        uint32_t tid = atomic_load(&t->tid);
        if (tid == 0)
            continue;
        if (ga_os_thread_lives(pid, (int)tid)) {
            alive += t->internal == 0 && t->dependent == 0;
        } else {
            free_record(root, i);
            ended = true;
        }
    }
    atomic_store(&root->threads_alive, alive);
    return ended;
}

// Returns an unused record; NULL: all are used. The caller holds threads_lock.
static struct ga_thread *pop_record(struct ga_root *root) {
    uint32_t used = atomic_load(&root->threads_used);
    uint32_t free = root->threads_free;
    if (free != 0) {
        struct ga_thread *t = ga_threads_at(root, free - 1);
        root->threads_free = t->free;
        return t;
    }
    if (used >= GA_THREADS) {
        uint32_t block = (used - GA_THREADS) / GA_THREAD_BLOCK;
        if (block >= GA_THREAD_BLOCKS || !atomic_load(&root->threads_beyond[block]))
            return NULL;
    }
    atomic_store(&root->threads_used, used + 1);
    return ga_threads_at(root, used);
}

// Frees records of ended threads if that is likely to find some, and returns one. Asks only if half
// of the records are new since the last time, so each thread costs at most two questions.
static struct ga_thread *reuse_record(struct ga_root *root, bool any) {
    if (any || 2 * root->threads_fresh >= atomic_load(&root->threads_used))
        find_ended(root);
    return root->threads_free != 0 ? pop_record(root) : NULL;
}

// Adds a block of records. False: no memory.
static bool add_block(struct ga_root *root) {
    struct ga_thread *block = alloc_pages(GA_THREAD_BLOCK * sizeof *block);
    for (size_t i = 0; block && i < GA_THREAD_BLOCKS; i++) {
        struct ga_thread *none = NULL;
        if (atomic_compare_exchange_strong(&root->threads_beyond[i], &none, block))
            return true;
    }
    return false;
}

// Returns a record for the calling thread. NULL: no memory.
static struct ga_thread *register_thread(struct ga_root *root) {
    struct ga_thread *found = NULL;
    bool more = true;
    while (!found) {
        ga_spin_lock(&root->threads_lock);
        found = pop_record(root);
        if (!found)
            found = reuse_record(root, !more);
        if (found) {
            found->internal = ga_self.internal;
            found->dependent = 0;
            root->threads_fresh++;
            atomic_store(&found->tid, ga_self.tid);
            if (!ga_self.internal)
                atomic_fetch_add(&root->threads_alive, 1);
        }
        ga_spin_unlock(&root->threads_lock);
        if (!found && !more)
            break;
        more = found || add_block(root);
    }
    return found;
}

bool ga_root_denies(void) {
    struct ga_root *root = atomic_load(&ga_root_pointer);
    if (!root || atomic_load(&root->generation) == 0) {
        struct ga_env env;
        ga_env_read(&env);
        return env.loss_closed || env.hello.memory != GA_NO_LIMIT || env.hello.share != 0;
    }
    return atomic_load(&root->on_loss) == GA_LOSS_CLOSED ||
           atomic_load(&root->link) == GA_LINK_LIVE || root->env.hello.memory != GA_NO_LIMIT ||
           root->env.hello.share != 0;
}

GA_NOINLINE struct ga_root *ga_root_enter(void) {
    if (ga_self.inside)
        return NULL;
    struct ga_root *root = atomic_load(&ga_root_pointer);
    if (!root)
        root = make();
    wipe_by_hand(root);
    if (atomic_load(&root->generation) == 0)
        start(root);
    uint64_t generation = atomic_load(&root->generation);
    if (generation == 0)
        return NULL;
    // After a fork inside such a section the generation differs, and the section does not count.
    if (ga_self.mutex_depth && ga_self.mutex_generation == generation)
        return NULL;
    if (ga_self.generation != generation) {
        ga_self = (struct ga_self){.inside = 1, .internal = ga_self.internal};
        ga_self.tid = ga_lock_read_self();
        ga_self.number = atomic_fetch_add(&root->threads_numbered, 1) + 1;
        ga_self.thread = register_thread(root);
        ga_self.generation = ga_self.thread ? generation : 0;
        ga_self.inside = 0;
    }
    return ga_self.generation == generation ? root : NULL;
}

#define ARENA_SIZE ((size_t)64 << 10)

void *ga_root_alloc(struct ga_root *root, size_t size) {
    size = (size + 63) & ~(size_t)63;
    if (size > ARENA_SIZE / 4)
        return alloc_pages(size);
    void *at = NULL;
    ga_self_lock(&root->arena_lock);
    if (root->arena_left < size) {
        uint8_t *more = alloc_pages(ARENA_SIZE);
        if (more) {
            root->arena = more;
            root->arena_left = ARENA_SIZE;
        }
    }
    if (root->arena_left >= size) {
        at = root->arena;
        root->arena_left -= size;
        root->arena += size;
    }
    ga_self_unlock(&root->arena_lock);
    return at;
}

// Counts the threads when one begins to wait, since nothing needs the number before; so no
// destructor has to run in the program's threads. A reused thread ID counts as alive, which only
// delays the detection of a deadlock. True: some threads have ended.
static bool count_threads(struct ga_root *root) {
    uint32_t used = atomic_load(&root->threads_used);
    uint64_t now = ga_os_coarse_ms();
    // The calling thread is alive. With many threads, ask at most every 100 ms.
    if (used <= 1 || (used > 8 && now - atomic_load(&root->threads_counted_ms) < 100))
        return false;
    atomic_store(&root->threads_counted_ms, now);
    ga_self_lock(&root->threads_lock);
    bool ended = find_ended(root);
    ga_self_unlock(&root->threads_lock);
    return ended;
}

void ga_move_wait(struct ga_root *root, struct ga_thread *thread) {
    do {
        atomic_store_explicit(&thread->moving, 0, memory_order_release);
        ga_os_wait(&root->frozen, 1, 100);
        atomic_store_explicit(&thread->moving, 1, memory_order_seq_cst);
    } while (atomic_load_explicit(&root->frozen, memory_order_seq_cst));
}

#define FREEZE_MS 500

void ga_threads_freeze(struct ga_root *root) {
    atomic_store(&root->frozen, 1);
    // From here on each thread sees frozen, or this thread sees that it moves.
    ga_os_barrier_of_all_threads();
    uint64_t end = ga_os_now_ms() + FREEZE_MS;
    for (uint32_t i = 0; i < atomic_load(&root->threads_used); i++) {
        struct ga_thread *t = ga_threads_at(root, i);
        while (atomic_load(&t->moving) && ga_os_now_ms() < end)
            ga_os_sleep_us(20);
        if (atomic_load(&t->moving))
            ga_log("a thread does not come to rest: what is in use may be counted wrongly");
    }
}

void ga_threads_thaw(struct ga_root *root) {
    atomic_store(&root->frozen, 0);
    ga_os_wake(&root->frozen, INT32_MAX);
}

static void publish_count(struct ga_root *root) {
    struct ga_view *view = atomic_load(&root->view);
    if (view)
        atomic_store((_Atomic uint32_t *)&view->page->threads, atomic_load(&root->threads_alive));
}

bool ga_threads_publish(struct ga_root *root) {
    bool ended = count_threads(root);
    publish_count(root);
    return ended;
}

void ga_threads_set_dependent(struct ga_root *root, bool dependent) {
    struct ga_thread *t = ga_self.thread;
    if (!t || ga_self.internal || (t->dependent != 0) == dependent)
        return;
    ga_self_lock(&root->threads_lock);
    t->dependent = dependent;
    atomic_fetch_add(&root->threads_alive, dependent ? UINT32_MAX : 1);
    ga_self_unlock(&root->threads_lock);
    publish_count(root);
}
