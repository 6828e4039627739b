// SPDX-License-Identifier: Apache-2.0
// wait_test PEER [CASE]: events during a thread's wait for the daemon, in the thread and its
// process. Each case has its own process and peer, and an alarm that bounds it.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "core/admit.h"
#include "core/connection.h"
#include "core/session.h"
#include "core/thread_slot.h"
#include "daemon.h"

#define LIMIT 1000
#define MOST 900 // bytes of the limit; two such blocks do not fit
#define PATIENCE 120

static const char *peer_path;
static char socket_path[64];
static struct test_daemon peer;

static struct ga_root *enter(void) {
    struct ga_root *root = ga_root_get();
    CHECK(root);
    memset(root->devices[0].uuid, 7, sizeof root->devices[0].uuid);
    atomic_store(&root->devices[0].known, 1);
    return root;
}

static uint16_t take(uint64_t bytes) {
    uint16_t tag = 0;
    CHECK(ga_admit(enter(), 0, bytes, GA_MEMORY_PLAIN, &tag));
    return tag;
}

static void give(uint64_t bytes, uint16_t tag) {
    ga_release(enter(), 0, bytes, tag);
}

static void *waiter(void *arg) {
    (void)arg;
    give(MOST, take(MOST));
    return NULL;
}

static pthread_t start(void *(*run)(void *), void *arg) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, arg) == 0);
    return thread;
}

static void check_nothing_used(void) {
    test_daemon_waiters(&peer, 0);
    CHECK(test_daemon_show(&peer).used == 0);
}

// A signal does not end a wait, and its handler runs.
static _Atomic int handled;
static void handle(int number) {
    (void)number;
    atomic_fetch_add(&handled, 1);
}

static void signals(void) {
    struct sigaction action = {.sa_handler = handle};
    uint16_t tag = take(MOST);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t w = start(waiter, NULL);
    test_daemon_waiters(&peer, 1);
    for (int i = 1; i <= 30; i++) {
        CHECK(pthread_kill(w, SIGUSR1) == 0);
        while (atomic_load(&handled) < i)
            usleep(100);
    }
    CHECK(test_daemon_show(&peer).waiters == 1);
    give(MOST, tag);
    pthread_join(w, NULL);
    check_nothing_used();
}

// An allocation is not a cancellation point: the thread waits to the end, and is cancelled
// afterwards.
static void *cancelled_later(void *arg) {
    waiter(arg);
    pthread_testcancel();
    return NULL;
}

static void cancelled(void) {
    void *result;
    uint16_t tag = take(MOST);
    pthread_t w = start(cancelled_later, NULL);
    test_daemon_waiters(&peer, 1);
    CHECK(pthread_cancel(w) == 0);
    CHECK(test_daemon_show(&peer).waiters == 1);
    give(MOST, tag);
    pthread_join(w, &result);
    CHECK(result == PTHREAD_CANCELED);
    check_nothing_used();
}

static _Atomic pid_t dying;

// A thread with asynchronous cancellation ends in the middle of a call. The address sanitizer does
// not support this, so with it the thread ends by the exit system call.
static void *cancelled_at_once(void *arg) {
    atomic_store(&dying, gettid());
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    return waiter(arg);
}

// Waits until the thread's ID is free. The kernel wakes the joining thread before it frees the ID,
// and until then the thread counts as alive.
static void join(pthread_t thread) {
    pthread_join(thread, NULL);
    while (syscall(SYS_tgkill, getpid(), atomic_load(&dying), 0) == 0)
        usleep(100);
}

static void end_thread(int number) {
    (void)number;
    syscall(SYS_exit, 0);
}

static void die(pthread_t w) {
    struct sigaction action = {.sa_handler = end_thread};
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
#ifdef __SANITIZE_ADDRESS__
    CHECK(pthread_kill(w, SIGUSR2) == 0);
#else
    CHECK(pthread_cancel(w) == 0);
#endif
    join(w);
}

static void die_waiting(void) {
    pthread_t w = start(cancelled_at_once, NULL);
    test_daemon_waiters(&peer, 1);
    die(w);
}

// A thread ends while it waits for the session itself: the next thread opens the session.
static void dead_at_hello(void) {
    test_daemon_say(&peer, "hello 1");
    die_waiting();
    test_daemon_say(&peer, "hello 0");
    waiter(NULL);
    check_nothing_used();
}

// A thread that has a slot ends while another thread waits for the session of a new daemon. The
// waiting thread finds the slot, but cannot give it back without a session.
static pthread_barrier_t turn;

static void *holder(void *arg) {
    (void)arg;
    atomic_store(&dying, gettid());
    CHECK(ga_thread_slot_use(enter(), 0));
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    return NULL;
}

static _Atomic int ticks;
static uint64_t look(struct ga_root *root, uint32_t device, uint64_t wanted) {
    (void)root, (void)device, (void)wanted;
    atomic_fetch_add(&ticks, 1);
    return 0;
}

static void ended_at_hello(void) {
    static const char *const again[] = {"limit", "1000", "resume", "0", "hello", "1",
                                        "wait",  "1",    "quiet",  "1", NULL};
    static struct ga_interface reaper = {.reap = look};
    CHECK(pthread_barrier_init(&turn, NULL, 2) == 0);
    pthread_t h = start(holder, NULL);
    pthread_barrier_wait(&turn); // the thread has it
    test_daemon_stop(&peer);
    peer = test_daemon_start(peer_path, socket_path, again);
    pthread_t w = start(waiter, NULL);
    test_daemon_waiters(&peer, 1);
    pthread_barrier_wait(&turn);
    join(h);
    ga_interface_join(&reaper);
    atomic_store(&enter()->devices[0].unexecuted, 1);
    while (atomic_load(&ticks) < 15) // every tenth call ticks for dead threads
        usleep(1000);
    atomic_store(&enter()->devices[0].unexecuted, 0);
    test_daemon_say(&peer, "hello 0");
    test_daemon_say(&peer, "admit");
    pthread_join(w, NULL);
    check_nothing_used();
}

// A thread ends while it opens the lease: the next thread opens it.
static void dead_at_attach(void) {
    struct ga_root *root = enter();
    CHECK(ga_session_ensure(root) == GA_WAY_ASK);
    CHECK(kill(peer.pid, SIGSTOP) == 0);
    pthread_t w = start(cancelled_at_once, NULL);
    while (atomic_load(&root->devices[0].attaching.state) == 0)
        usleep(100);
    die(w);
    CHECK(kill(peer.pid, SIGCONT) == 0);
    waiter(NULL);
    check_nothing_used();
}

// More threads have slots than one batch of the search contains. The thread that ends is the last
// one found.
#define HOLDERS 40
static _Atomic uint32_t ending; // number of the thread that must end

static void *holder_of_many(void *number) {
    CHECK(ga_thread_slot_use(enter(), 0));
    *(uint32_t *)number = ga_self.number;
    pthread_barrier_wait(&turn);
    while (atomic_load(&ending) != ga_self.number && atomic_load(&ending) != UINT32_MAX)
        usleep(1000);
    return NULL;
}

static void ended_of_many(void) {
    struct ga_root *root = enter();
    pthread_t thread[HOLDERS];
    uint32_t number[HOLDERS];
    struct ga_entry last = {.key = 0};
    CHECK(pthread_barrier_init(&turn, NULL, 2) == 0);
    for (int i = 0; i < HOLDERS; i++) {
        thread[i] = start(holder_of_many, &number[i]);
        pthread_barrier_wait(&turn);
    }
    test_daemon_say(&peer, "slots 40"); // all slots are taken
    struct ga_entry e;
    struct ga_walk walk = ga_table_walk(&root->thread_slots);
    while (ga_table_next(&walk, &e))
        last = e;
    atomic_store(&ending, (uint32_t)(last.key >> 8));
    atomic_store(&dying, (pid_t)last.bytes);
    for (int i = 0; i < HOLDERS; i++)
        if (number[i] == last.key >> 8)
            join(thread[i]);
    CHECK(ga_thread_slot_use(root, 0));
    atomic_store(&ending, UINT32_MAX);
    for (int i = 0; i < HOLDERS; i++)
        if (number[i] != last.key >> 8)
            pthread_join(thread[i], NULL);
    check_nothing_used();
}

// A forked child has copies of the connections, but does not disturb the parent's waiting thread.
static void forked(void) {
    int go[2];
    uint16_t tag = take(MOST);
    pthread_t w = start(waiter, NULL);
    test_daemon_waiters(&peer, 1);
    CHECK(pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        give(MOST, take(MOST)); // the child has a session of its own
        close(go[1]);
        _exit(read(go[0], &byte, 1) == 1 ? 0 : 1);
    }
    give(MOST, tag);
    pthread_join(w, NULL);
    int status;
    CHECK(write(go[1], "x", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    check_nothing_used();
}

// A process ends, in different ways, while its thread waits: its request is removed from the queue.
static void ends(void (*how)(void), bool killed) {
    int go[2], status;
    CHECK(pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        take(MOST);
        start(waiter, NULL);
        if (read(go[0], &byte, 1) == 1)
            how();
        _exit(1);
    }
    test_daemon_waiters(&peer, 1);
    CHECK(write(go[1], "x", 1) == 1);
    test_daemon_waiters(&peer, 0);
    if (killed)
        kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child && (killed || status == 0));
}

static void exec_sleep(void) {
    execlp("sleep", "sleep", "1000", (char *)NULL);
}

static void exec_another(void) {
    ends(exec_sleep, true);
}

static void exit_well(void) {
    exit(0);
}

static void exit_elsewhere(void) {
    ends(exit_well, false);
}

// The program closes all descriptors of the library.
static void closed(void) {
    uint16_t tag = take(MOST);
    pthread_t w = start(waiter, NULL);
    test_daemon_waiters(&peer, 1);
    for (int fd = 30; fd < 1024; fd++)
        close(fd);
    give(MOST, tag);
    pthread_join(w, NULL);
    check_nothing_used();
}

// Another thread's connection gets the number of a closed connection: no thread reads the other's
// reply.
#define HALF (MOST / 2)

static void *waiter_of_half(void *arg) {
    (void)arg;
    give(HALF, take(HALF));
    return NULL;
}

static void used_again(void) {
    for (int i = 0; i < 20; i++) {
        uint16_t tag = take(MOST);
        pthread_t first = start(waiter_of_half, NULL);
        test_daemon_waiters(&peer, 1);
        for (int fd = 30; fd < 1024; fd++)
            close(fd);
        pthread_t second = start(waiter_of_half, NULL);
        test_daemon_waiters(&peer, 2);
        give(MOST, tag);
        pthread_join(first, NULL);
        pthread_join(second, NULL);
        check_nothing_used();
    }
}

// The program closes a connection, and another connection gets the number. A forked child closes
// its copy of the second connection, although the first one has released that number since.
static int socket_end(void) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    return pair[0];
}

static void renumbered(void) {
    struct ga_root *root = enter();
    struct ga_connection *connection = root->connections;
    int first = socket_end();
    int number = socket_end();
    int status;
    ga_connection_set(&connection[0], first);
    ga_connection_set(&connection[1], number);
    ga_connection_set(&connection[0], -1);
    CHECK(dup2(socket_end(), number) ==
          number); // closes it, and the next connection gets its number
    ga_connection_set(&connection[2], number);
    ga_connection_set(&connection[1], -1);
    pid_t child = fork();
    if (child == 0)
        _exit(ga_root_get() && fcntl(number, F_GETFD) < 0 && errno == EBADF ? 0 : 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    ga_connection_set(&connection[2], -1);
}

// The daemon dies and starts again, and another thread frees memory in between.
static void restarted(void) {
    static const char *const again[] = {"limit", "1000", "wait", "1", "quiet", "1", NULL};
    uint16_t tag = take(MOST);
    pthread_t w = start(waiter, NULL);
    test_daemon_waiters(&peer, 1);
    test_daemon_stop(&peer);
    give(MOST / 2, tag);
    peer = test_daemon_start(peer_path, socket_path, again);
    test_daemon_waiters(&peer, 1);
    give(MOST - MOST / 2, tag);
    pthread_join(w, NULL);
    check_nothing_used();
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"signals", signals},
    {"cancelled", cancelled},
    {"dead at hello", dead_at_hello},
    {"dead at attach", dead_at_attach},
    {"ended at hello", ended_at_hello},
    {"ended of many", ended_of_many},
    {"forked", forked},
    {"exec", exec_another},
    {"exit", exit_elsewhere},
    {"closed", closed},
    {"used again", used_again},
    {"renumbered", renumbered},
    {"restarted", restarted},
};

static void run(size_t i) {
    static const char *const options[] = {"limit", "1000", "wait", "1", "quiet", "1", NULL};
    alarm(PATIENCE);
    snprintf(socket_path, sizeof socket_path, "/tmp/gpuarb-wait-%d.sock", (int)getpid());
    setenv("GPUARB_SOCKET", socket_path, 1);
    setenv("GPUARB_ON_LOSS", "closed", 1);
    peer = test_daemon_start(peer_path, socket_path, options);
    cases[i].run();
    test_daemon_stop(&peer);
    unlink(socket_path);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    peer_path = argv[1];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int status;
        if (argc > 2 && strcmp(argv[2], cases[i].name) != 0)
            continue;
        pid_t child = fork();
        if (child == 0) {
            run(i);
            exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        if (status != 0) {
            fprintf(stderr, "%s: status %#x\n", cases[i].name, (unsigned)status);
            return 1;
        }
    }
    return 0;
}
