// SPDX-License-Identifier: Apache-2.0
// threads_test [PEER]: records of threads, for any number of threads; memory acquired without a
// daemon; and a daemon that starts later. Without PEER there is no daemon.
#include <pthread.h>
#include <sys/syscall.h>

#include "core/admit.h"
#include "core/device.h"
#include "core/link.h"
#include "daemon.h"

#define DEVICE 0
#define LATER 3000 // number of threads that run one after the other
#define AT_ONCE 1500
#define BYTES 3

static struct ga_root *enter(void) {
    struct ga_root *root = ga_root_get();
    CHECK(root && ga_self.thread);
    CHECK(ga_device_number(root, (const uint8_t[GA_UUID_SIZE]){7}) == DEVICE);
    return root;
}

static pthread_t start(void *(*run)(void *), void *arg) {
    pthread_attr_t attr;
    pthread_t thread;
    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setstacksize(&attr, 256 << 10) == 0);
    CHECK(pthread_create(&thread, &attr, run, arg) == 0);
    return thread;
}

// Waits until the kernel has forgotten the thread's ID, which is a moment after the join.
static void join(pthread_t thread, const _Atomic pid_t *tid) {
    pthread_join(thread, NULL);
    while (tid && syscall(SYS_tgkill, getpid(), atomic_load(tid), 0) == 0)
        usleep(100);
}

static void take(struct ga_root *root, uint64_t bytes) {
    uint16_t tag;
    CHECK(ga_admit(root, DEVICE, bytes, GA_MEMORY_PLAIN, &tag));
}

static void *comes_and_goes(void *arg) {
    (void)arg;
    struct ga_root *root = enter();
    uint16_t tag;
    CHECK(ga_admit(root, DEVICE, BYTES, GA_MEMORY_PLAIN, &tag));
    ga_release(root, DEVICE, BYTES, tag);
    return NULL;
}

static void *never_releases(void *arg) {
    atomic_store((_Atomic pid_t *)arg, gettid());
    take(enter(), 7);
    return NULL;
}

static pthread_barrier_t all_have, all_may_go;

static void *holds(void *arg) {
    (void)arg;
    struct ga_root *root = enter();
    take(root, BYTES);
    pthread_barrier_wait(&all_have);
    pthread_barrier_wait(&all_may_go);
    ga_release(root, DEVICE, BYTES, atomic_load(&root->tag));
    return NULL;
}

// Threads that never wait: their records are reused, and all threads that live at once have one
// each.
static void records(void) {
    static pthread_t thread[AT_ONCE];
    struct ga_root *root = enter();
    for (int i = 0; i < LATER; i++)
        join(start(comes_and_goes, NULL), NULL);
    CHECK(atomic_load(&root->threads_used) <= 2 * GA_THREADS);
    CHECK(ga_link_used(root, DEVICE) == 0);
    CHECK(pthread_barrier_init(&all_have, NULL, AT_ONCE + 1) == 0);
    CHECK(pthread_barrier_init(&all_may_go, NULL, AT_ONCE + 1) == 0);
    for (int i = 0; i < AT_ONCE; i++)
        thread[i] = start(holds, NULL);
    pthread_barrier_wait(&all_have);
    CHECK(ga_link_used(root, DEVICE) == AT_ONCE * BYTES);
    pthread_barrier_wait(&all_may_go);
    for (int i = 0; i < AT_ONCE; i++)
        join(thread[i], NULL);
    CHECK(ga_link_used(root, DEVICE) == 0);
}

// Bytes that were in flight when a thread ended stay in use, even after another thread has got its
// record.
static void stranded(void) {
    struct ga_root *root = enter();
    _Atomic pid_t tid = 0;
    pthread_t dead = start(never_releases, &tid);
    join(dead, &tid);
    CHECK(ga_link_used(root, DEVICE) == 7);
    for (int i = 0; i < LATER; i++)
        join(start(comes_and_goes, NULL), NULL);
    CHECK(ga_link_used(root, DEVICE) == 7);
    atomic_store(&root->stranded[DEVICE], 0);
    atomic_store(&root->devices[DEVICE].debt, 0);
}

// Contexts that a thread was making are no longer counted when the thread has ended.
static void *never_makes(void *arg) {
    atomic_store((_Atomic pid_t *)arg, gettid());
    ga_publish_context_begin(enter(), DEVICE);
    return NULL;
}

static void abandoned(void) {
    struct ga_root *root = enter();
    _Atomic pid_t tid = 0;
    join(start(never_makes, &tid), &tid);
    CHECK(atomic_load(&root->making[DEVICE]) == 1);
    for (int i = 0; i < LATER; i++)
        join(start(comes_and_goes, NULL), NULL);
    CHECK(atomic_load(&root->making[DEVICE]) == 0);
}

#define DECLARED 100
static _Atomic int64_t most_seen, taken_now;

static void *takes_what_it_may(void *arg) {
    uint64_t seed = 77 + (uintptr_t)arg;
    struct ga_root *root = enter();
    for (int i = 0; i < 5000; i++) {
        uint16_t tag;
        uint64_t bytes = 1 + test_random(&seed) % (DECLARED / 2);
        if (!ga_admit(root, DEVICE, bytes, GA_MEMORY_PLAIN, &tag))
            continue;
        int64_t now = atomic_fetch_add(&taken_now, (int64_t)bytes) + (int64_t)bytes;
        int64_t most = atomic_load(&most_seen);
        while (now > most && !atomic_compare_exchange_weak(&most_seen, &most, now))
            ;
        atomic_fetch_sub(&taken_now, (int64_t)bytes);
        ga_release(root, DEVICE, bytes, tag);
    }
    return NULL;
}

// A limit in the environment applies without a daemon, exactly to the byte, with racing threads.
static void declared(void) {
    struct ga_root *root = enter();
    uint16_t tag;
    pthread_t thread[4];
    atomic_store(&root->declared[DEVICE], DECLARED + 1);
    CHECK(ga_admit(root, DEVICE, DECLARED, GA_MEMORY_PLAIN, &tag));
    CHECK(!ga_admit(root, DEVICE, 1, GA_MEMORY_PLAIN, &tag));
    ga_release(root, DEVICE, DECLARED, tag);
    CHECK(!ga_admit(root, DEVICE, DECLARED + 1, GA_MEMORY_PLAIN, &tag));
    for (uintptr_t i = 0; i < 4; i++)
        thread[i] = start(takes_what_it_may, (void *)i);
    for (int i = 0; i < 4; i++)
        join(thread[i], NULL);
    CHECK(atomic_load(&most_seen) <= DECLARED);
    CHECK(ga_admit(root, DEVICE, DECLARED, GA_MEMORY_PLAIN, &tag));
    ga_release(root, DEVICE, DECLARED, tag);
    atomic_store(&root->declared[DEVICE], 0);
}

static _Atomic bool stop;

static void *busy(void *arg) {
    (void)arg;
    struct ga_root *root = enter();
    while (!atomic_load(&stop)) {
        uint16_t tag;
        if (ga_admit(root, DEVICE, 5, GA_MEMORY_PLAIN, &tag))
            ga_release(root, DEVICE, 5, tag);
    }
    return NULL;
}

// Reports whether the thread is in a move that another thread waits for. That wait is bounded.
static bool is_in_the_way(struct ga_root *root) {
    return atomic_load(&root->frozen) && ga_self.thread && atomic_load(&ga_self.thread->moving);
}

// Stops a thread anywhere, until the daemon runs. The stop is bounded, because other threads may
// have to wait for this thread.
static void hold_up(int number) {
    struct ga_root *root = atomic_load(&ga_root_pointer);
    (void)number;
    for (int i = 0; i < 2000 && atomic_load(&root->link) != GA_LINK_LIVE; i++) {
        if (is_in_the_way(root))
            return;
        usleep(100);
    }
}

// A daemon starts while threads acquire their first bytes. Bytes acquired without it must never
// become credit.
static void comes(const char *path, const char *socket) {
    static const char *const options[] = {"limit", "1000", "quiet", "1", NULL};
    struct sigaction action = {.sa_handler = hold_up};
    pthread_t thread[3];
    struct ga_root *root = enter();
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(ga_session_ensure(root) == GA_WAY_OPEN);
    for (int i = 0; i < 3; i++)
        thread[i] = start(busy, NULL);
    struct test_daemon peer = test_daemon_start(path, socket, options);
    for (int i = 0; i < 3; i++)
        pthread_kill(thread[i], SIGUSR1);
    usleep(1000);
    while (atomic_load(&root->link) != GA_LINK_LIVE) {
        atomic_store(&root->retry_at_ms, 0);
        ga_session_ensure(root);
    }
    usleep(2000);
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        join(thread[i], NULL);
    struct test_state s = test_daemon_show(&peer);
    CHECK((int64_t)s.used == 0);
    CHECK(ga_link_used(root, DEVICE) == 0);
    test_daemon_stop(&peer);
}

// A device has one constant number, whichever interface names it, and in whatever order.
static void numbers(void) {
    struct ga_root *root = enter();
    uint8_t uuid[GA_UUID_SIZE] = {0};
    for (uint8_t i = 1; i < GA_DEVICES; i++) {
        uuid[GA_UUID_SIZE - 1] = i;
        CHECK(ga_device_find(root, uuid) == -1);
        CHECK(ga_device_number(root, uuid) == i && ga_device_number(root, uuid) == i);
    }
    uuid[GA_UUID_SIZE - 1] = 1;
    CHECK(ga_device_number(root, uuid) == 1 && ga_device_find(root, uuid) == 1);
    uuid[GA_UUID_SIZE - 1] = GA_DEVICES; // one more than can be arbitrated
    CHECK(ga_device_number(root, uuid) == -1 && ga_device_find(root, uuid) == -1);
}

int main(int argc, char **argv) {
    char socket[64];
    snprintf(socket, sizeof socket, "/tmp/gpuarb-threads-%d", (int)getpid());
    setenv("GPUARB_SOCKET", socket, 1);
    setenv("GPUARB_ON_LOSS", "open", 1);
    alarm(240);
    if (argc > 1) {
        comes(argv[1], socket);
        unlink(socket);
        return 0;
    }
    declared();
    stranded();
    abandoned();
    records();
    numbers();
    return 0;
}
