// SPDX-License-Identifier: Apache-2.0
// The start of the thread, its work, and its stop when the process exits.
#include "memory/idle.h"

#include <pthread.h>

#include "core/admit.h"
#include "core/log.h"
#include "hook/loader.h"
#include "memory/state.h"

#define TICK_MS 100 // interval at which the thread reads the credit words

// NONE: not started; STARTED: running; ENDING: the process exits, or the thread cannot be created
enum ga_memory_idle { NONE, STARTED, ENDING };

// Functions that create a thread. They are looked up and not linked: before glibc 2.34 they are in
// libpthread, which drivers need but not every program loads.
struct threads {
    int (*attr_init)(pthread_attr_t *);
    int (*attr_setdetachstate)(pthread_attr_t *, int);
    int (*attr_setstacksize)(pthread_attr_t *, size_t);
    int (*attr_destroy)(pthread_attr_t *);
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int (*at_exit)(void (*)(void *), void *, void *);
};

static void *look_up(const struct ga_memory_driver *driver, const char *name) {
    void *handle = atomic_load(driver->library);
    return handle ? ga_loader_get()->dlsym(handle, name) : NULL;
}

static bool find_pthread(const struct ga_memory_driver *driver, struct threads *t) {
    t->attr_init = (int (*)(pthread_attr_t *))look_up(driver, "pthread_attr_init");
    t->attr_setdetachstate =
        (int (*)(pthread_attr_t *, int))look_up(driver, "pthread_attr_setdetachstate");
    t->attr_setstacksize =
        (int (*)(pthread_attr_t *, size_t))look_up(driver, "pthread_attr_setstacksize");
    t->attr_destroy = (int (*)(pthread_attr_t *))look_up(driver, "pthread_attr_destroy");
    t->create = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))look_up(
        driver, "pthread_create");
    t->at_exit = (int (*)(void (*)(void *), void *, void *))look_up(driver, "__cxa_atexit");
    return t->attr_init && t->attr_setdetachstate && t->attr_setstacksize && t->attr_destroy &&
           t->create && t->at_exit;
}

// Reports whether a device has bytes that the thread may be able to give back.
static bool may_return(struct ga_root *root, uint32_t device) {
    return ga_root_pending(root, device) != 0;
}

static bool is_pending(struct ga_root *root) {
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (may_return(root, d))
            return true;
    return false;
}

// Reports whether the daemon has asked for a device's bytes, and there are some.
static bool is_wanted(struct ga_root *root, uint32_t device) {
    struct ga_view *view = atomic_load(&root->view);
    uint32_t slot = view ? atomic_load(&view->slot[device]) : 0;
    return slot && may_return(root, device) &&
           (atomic_load(ga_credit_word(&view->page->lease[slot - 1])) & GA_FLAG_NOTIFY) != 0;
}

// Gives back bytes of the devices for which another job waits. Sets idle_busy before it reads
// idle_thread; end() writes idle_thread before it reads idle_busy. So either this thread sees that
// the process exits, and does not call the driver, or end() waits until the driver has returned.
static void reap_wanted(struct ga_root *root) {
    for (uint32_t d = 0; d < GA_DEVICES; d++) {
        if (!is_wanted(root, d))
            continue;
        atomic_store(&ga_memory_of(root)->idle_busy, 1);
        if (atomic_load(&ga_memory_of(root)->idle_thread) == STARTED)
            ga_interface_reap(root, d, UINT64_MAX);
        atomic_store(&ga_memory_of(root)->idle_busy, 0);
    }
}

// Sleeps while nothing is pending. Sets idle_sleeping before it reads the pending bytes. A thread
// that makes bytes pending does so before it reads idle_sleeping (ga_memory_idle_wake). So one of
// the two sees the other's write, and no wake-up is lost.
static void sleep_until_pending(struct ga_root *root) {
    atomic_store(&ga_memory_of(root)->idle_sleeping, 1);
    if (is_pending(root))
        atomic_store(&ga_memory_of(root)->idle_sleeping, 0);
    else
        ga_os_wait(&ga_memory_of(root)->idle_sleeping, 1, -1);
}

static void *run(void *argument) {
    struct ga_root *root = argument;
    ga_os_name_thread("gpuarb");
    ga_self.internal = true;
    if (ga_root_get() != root)
        return NULL;
    while (atomic_load(&ga_memory_of(root)->idle_thread) == STARTED) {
        sleep_until_pending(root);
        reap_wanted(root);
        ga_os_wait(&ga_memory_of(root)->idle_thread, STARTED, TICK_MS);
    }
    return NULL;
}

// Stops the thread's calls of the driver when the process exits. Exit handlers run in reverse
// order: the driver registered its own before this one, so that the driver works until this has
// returned.
static void end(void *argument) {
    struct ga_root *root = atomic_load(&ga_root_pointer);
    (void)argument; // not every C library passes the argument of __cxa_atexit
    uint32_t started = STARTED;
    if (!atomic_compare_exchange_strong(&ga_memory_of(root)->idle_thread, &started, ENDING))
        return; // a forked child, which has no such thread
    for (int ms = 0; atomic_load(&ga_memory_of(root)->idle_busy) && ms < TICK_MS; ms++)
        ga_os_sleep_us(1000);
}

// Creates the thread, with a stack of 1 MiB, or of 8 MiB if that is too small. The vendor's driver
// runs on the stack, and its needs are not known; thread-local memory of the program is part of it.
// Unused stack costs address space alone.
static bool create(const struct threads *t, struct ga_root *root) {
    static const size_t stacks[] = {1 << 20, 8 << 20};
    bool created = false;
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0] && !created; i++) {
        pthread_attr_t attr;
        pthread_t thread;
        if (t->attr_init(&attr) != 0)
            return false;
        t->attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        created = t->attr_setstacksize(&attr, stacks[i]) == 0 &&
                  t->create(&thread, &attr, run, root) == 0;
        t->attr_destroy(&attr);
    }
    return created;
}

static GA_NOINLINE void start(struct ga_root *root, const struct ga_memory_driver *driver) {
    struct threads t;
    uint32_t none = NONE;
    if (!atomic_compare_exchange_strong(&ga_memory_of(root)->idle_thread, &none, STARTED))
        return;
    // The new thread inherits the mask: the program's signals must go to the program's own threads.
    uint64_t blocked = ga_os_block_signals();
    if (!find_pthread(driver, &t) || t.at_exit(end, NULL, NULL) != 0 || !create(&t, root)) {
        atomic_store(&ga_memory_of(root)->idle_thread, ENDING);
        ga_log("no thread to give back what is pending while the program idles");
    }
    ga_os_restore_signals(blocked);
}

void ga_memory_idle_wake(struct ga_root *root, const struct ga_memory_driver *driver) {
    if (GA_UNLIKELY(atomic_load_explicit(&ga_memory_of(root)->idle_thread, memory_order_relaxed) ==
                    NONE))
        start(root, driver);
    // Orders the caller's write, which made bytes pending, before the read of idle_sleeping: see
    // sleep_until_pending.
    atomic_thread_fence(memory_order_seq_cst);
    if (GA_UNLIKELY(
            atomic_load_explicit(&ga_memory_of(root)->idle_sleeping, memory_order_relaxed) != 0) &&
        atomic_exchange(&ga_memory_of(root)->idle_sleeping, 0) != 0)
        ga_os_wake(&ga_memory_of(root)->idle_sleeping, 1);
}
