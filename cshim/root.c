// SPDX-License-Identifier: Apache-2.0
#include "root.h"

#include "lane.h"
#include "log.h"

__thread struct ga_self ga_self __attribute__((tls_model("initial-exec")));
struct ga_root *_Atomic ga_root_pointer;

// Outside of the wiped pages, so that a child's generation differs from every one that
// its copies of thread-local memory can hold.
static _Atomic uint64_t last_generation;

static size_t root_size(void) {
    return (sizeof(struct ga_root) + 0xffff) & ~(size_t)0xffff;
}

static struct ga_root *make(void) {
    struct ga_root *root = ga_os_map(root_size());
    if (!root)
        return NULL;
    if (!ga_os_wipe_on_fork(root, root_size()))
        atomic_store(&root->check_pid, (uint32_t)ga_os_pid());
    struct ga_root *other = NULL;
    if (atomic_compare_exchange_strong(&ga_root_pointer, &other, root))
        return root;
    ga_os_unmap(root, root_size());
    return other;
}

// Where the kernel cannot wipe, a pid that changed shows the child. Costs a system call per
// intercepted call there.
static void wipe_by_hand(struct ga_root *root) {
    uint32_t pid = (uint32_t)ga_os_pid();
    uint32_t seen = atomic_load(&root->check_pid);
    if (seen == 0 || seen == pid)
        return;
    ga_os_zero(root, sizeof *root);
    atomic_store(&root->check_pid, pid);
}

static void start(struct ga_root *root) {
    uint32_t idle = 0;
    if (atomic_compare_exchange_strong(&root->starting, &idle, 1)) {
        ga_env_read(&root->env);
        root->on_loss = root->env.loss_closed ? GA_LOSS_CLOSED : GA_LOSS_OPEN;
        root->page_fd = -1;
        atomic_store(&root->host_max, GA_NO_LIMIT);
        if (atomic_load(&last_generation) != 0)
            ga_lane_forget_inherited();
        atomic_store(&root->tag, 1);
        atomic_store_explicit(&root->generation, atomic_fetch_add(&last_generation, 1) + 1,
                              memory_order_release);
        return;
    }
    for (int spins = 0; atomic_load(&root->generation) == 0; spins++) {
        // Also the way out for a signal handler that interrupted the starting thread.
        if (spins > 2000)
            return;
        ga_os_sleep_us(50);
    }
}

static struct ga_thread *register_thread(struct ga_root *root) {
    ga_spin_lock(&root->threads_lock);
    uint32_t used = atomic_load(&root->threads_used);
    struct ga_thread *found = NULL;
    for (uint32_t i = 0; i < used && !found; i++)
        if (atomic_load(&root->threads[i].tid) == 0)
            found = &root->threads[i];
    if (!found && used < GA_THREADS) {
        found = &root->threads[used];
        atomic_store(&root->threads_used, used + 1);
    }
    if (found) {
        atomic_store(&found->inflight, 0);
        atomic_store(&found->moving, 0);
        found->aside = 0;
        found->number = ga_self.number;
        found->unseen = ga_self.unseen;
        atomic_store(&found->tid, ga_self.tid);
    } else {
        atomic_fetch_add(&root->threads_more, 1);
    }
    if (!ga_self.unseen)
        atomic_fetch_add(&root->threads_alive, 1);
    ga_spin_unlock(&root->threads_lock);
    return found;
}

// A thread that jumped out of a signal handler did not come to the end of what that interrupted.
static void come_to_itself(void) {
    uint32_t now = ga_os_stack() + GA_SIGNAL_FRAME;
    if (ga_self.inside && ga_os_left(ga_self.inside, now))
        ga_self_leave();
    if (ga_self.away && ga_os_left(ga_self.away_stack, now)) {
        ga_self.away = 1;
        ga_self_come_back();
    }
}

GA_NOINLINE struct ga_root *ga_root_enter(void) {
    come_to_itself();
    if (ga_self.inside)
        return NULL;
    struct ga_root *root = atomic_load(&ga_root_pointer);
    if (!root)
        root = make();
    if (!root)
        return NULL;
    wipe_by_hand(root);
    if (atomic_load(&root->generation) == 0)
        start(root);
    uint64_t generation = atomic_load(&root->generation);
    if (generation == 0)
        return NULL;
    // Copied by fork out of the middle of such a section, it tells nothing.
    if (ga_self.away && ga_self.away_generation == generation)
        return NULL;
    if (ga_self.generation != generation) {
        ga_self = (struct ga_self){.inside = ga_os_stack() | 1, .unseen = ga_self.unseen};
        ga_self.tid = ga_lock_know_self();
        ga_self.number = atomic_fetch_add(&root->threads_numbered, 1) + 1;
        ga_self.thread = register_thread(root);
        ga_self.generation = generation;
        ga_self.inside = 0;
    }
    return root;
}

#define ARENA_SIZE ((size_t)64 << 10)

void *ga_root_alloc(struct ga_root *root, size_t size) {
    size = (size + 63) & ~(size_t)63;
    if (size > ARENA_SIZE / 4) {
        size = (size + 0xffff) & ~(size_t)0xffff;
        void *own = ga_os_map(size);
        if (own)
            ga_os_wipe_on_fork(own, size);
        return own;
    }
    void *at = NULL;
    ga_self_enter();
    ga_spin_lock(&root->arena_lock);
    if (root->arena_left < size) {
        uint8_t *more = ga_os_map(ARENA_SIZE);
        if (more) {
            ga_os_wipe_on_fork(more, ARENA_SIZE);
            root->arena = more;
            root->arena_left = ARENA_SIZE;
        }
    }
    if (root->arena_left >= size) {
        at = root->arena;
        root->arena += size;
        root->arena_left -= size;
    }
    ga_spin_unlock(&root->arena_lock);
    ga_self_leave();
    return at;
}

// Threads that ended are noticed here, when somebody begins to wait: nothing needs the
// number before, and no destructor has to run in the program's threads for it. A number that
// another thread has got since counts as alive: that only delays the finding of a deadlock.
static bool count_threads(struct ga_root *root) {
    uint32_t used = atomic_load(&root->threads_used);
    uint64_t now = ga_os_coarse_ms();
    // One is alive, since it asks; many are not asked after each time.
    if (used <= 1 || (used > 8 && now - atomic_load(&root->threads_counted_ms) < 100))
        return false;
    atomic_store(&root->threads_counted_ms, now);
    int pid = ga_os_pid();
    bool ended = false;
    ga_self_enter();
    ga_spin_lock(&root->threads_lock);
    uint32_t alive = atomic_load(&root->threads_more);
    for (uint32_t i = 0; i < atomic_load(&root->threads_used); i++) {
        uint32_t tid = atomic_load(&root->threads[i].tid);
        if (tid == 0)
            continue;
        if (ga_os_thread_lives(pid, (int)tid)) {
            alive += root->threads[i].unseen == 0 && root->threads[i].aside == 0;
        } else {
            atomic_store(&root->threads[i].tid, 0);
            ended = true;
        }
    }
    atomic_store(&root->threads_alive, alive);
    ga_spin_unlock(&root->threads_lock);
    ga_self_leave();
    return ended;
}

void ga_move_wait(struct ga_root *root, struct ga_thread *thread) {
    // Who froze them moves nothing meanwhile: this one has jumped out of that.
    if (ga_mutex_is_mine(&root->linking))
        ga_threads_thaw(root);
    do {
        atomic_store_explicit(&thread->moving, 0, memory_order_release);
        ga_os_wait(&root->frozen, 1, 100);
        atomic_store_explicit(&thread->moving, 1, memory_order_seq_cst);
    } while (atomic_load_explicit(&root->frozen, memory_order_seq_cst));
}

#define FREEZE_MS 500

void ga_threads_freeze(struct ga_root *root) {
    atomic_store(&root->frozen, 1);
    // After this every thread either sees frozen, or we see that it moves.
    ga_os_barrier_of_all_threads();
    uint64_t end = ga_os_now_ms() + FREEZE_MS;
    for (uint32_t i = 0; i < atomic_load(&root->threads_used); i++) {
        while (atomic_load(&root->threads[i].moving) && ga_os_now_ms() < end)
            ga_os_sleep_us(20);
        if (atomic_load(&root->threads[i].moving))
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
    ga_threads_aside(root, false); // it may have jumped out of where it was
    bool ended = count_threads(root);
    publish_count(root);
    return ended;
}

void ga_threads_aside(struct ga_root *root, bool aside) {
    struct ga_thread *t = ga_self.thread;
    if (!t || ga_self.unseen || (t->aside != 0) == aside)
        return;
    ga_self_enter();
    ga_spin_lock(&root->threads_lock);
    t->aside = aside;
    atomic_fetch_add(&root->threads_alive, aside ? UINT32_MAX : 1);
    ga_spin_unlock(&root->threads_lock);
    ga_self_leave();
    publish_count(root);
}
