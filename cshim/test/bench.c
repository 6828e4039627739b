// SPDX-License-Identifier: Apache-2.0
// cshim-bench: what the shim adds to a call, in Go's benchmark format.
//
//   cshim-bench [LIBRARY [FOLDER [PEER]]]   default: build/libgpuarb.so build/sim/stub
//                                                    build/cshim-test/peer
//   cshim-bench once                                 one turn of each, to see that it works
//
// Two workers run one loop on a driver that does nothing: one bare, one with the preload. They take
// turns of a fraction of a millisecond, so that both see the same load of the machine. The lower
// decile of many turns counts. BenchmarkShim… lines are the difference of the workers;
// BenchmarkDriver… is the bare worker. BenchmarkFloor… is a compare-and-swap pair with a table
// insert and remove, on as many threads.
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <dlfcn.h>

#include "core/credit.h"
#include "core/table.h"

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

// The worker: reads "allocfree|async|pending|floor THREADS COUNT" on stdin, and writes nanoseconds
// a call to stdout.

static int (*mem_alloc)(uint64_t *, size_t);
static int (*mem_free)(uint64_t);
static int (*alloc_async)(uint64_t *, size_t, void *);
static int (*free_async)(uint64_t, void *);
static int (*stream_create_with)(void **, unsigned, int);
static int (*stream_create)(void **, unsigned);
static int (*stream_destroy)(void *);
static struct ga_table floor_table;
static struct ga_wire_lease_slot floor_slot = {.credit = 1ull << 40};

struct job {
    char what[16];
    long count;
    uint64_t base;
    pthread_barrier_t *start;
    double began, ended; // ns
};

static void die(const char *why) {
    fprintf(stderr, "cshim-bench: %s\n", why);
    exit(1);
}

static void run_floor(const struct job *j) {
    struct ga_entry e = {.bytes = 512}, old;
    for (long i = 0; i < j->count; i++) {
        e.key = j->base + (uint64_t)i * 512;
        ga_credit_acquire(&floor_slot, 512);
        ga_table_put(&floor_table, &e, &old);
        ga_table_remove(&floor_table, e.key, &old);
        ga_credit_release(&floor_slot, 512);
    }
}

static void *symbol(void *handle, const char *name) {
    void *found = dlsym(handle, name);
    if (!found)
        die(name);
    return found;
}

#define PENDING 32000

// Frees many blocks, once, on a stream whose work never ends (in the stub, a stream with a
// priority).
static void leave_pending(void) {
    static bool left;
    void *stuck = NULL;
    uint64_t p;
    if (left)
        return;
    left = true;
    if (stream_create_with(&stuck, 1, -1) != 0)
        die("a stream is refused");
    for (long i = 0; i < PENDING; i++)
        if (alloc_async(&p, 512, stuck) != 0 || free_async(p, stuck) != 0)
            die("refused in stream order");
}

// Allocates and frees in stream order: each block is freed on the stream that allocates the next
// one.
static void run_async(const struct job *j) {
    void *s = NULL;
    if (stream_create(&s, 1) != 0)
        die("a stream is refused");
    for (long i = 0; i < j->count; i++) {
        uint64_t p;
        if (alloc_async(&p, 512, s) != 0 || free_async(p, s) != 0)
            die("refused in stream order");
    }
    stream_destroy(s);
}

static void *run_job(void *arg) {
    struct job *j = arg;
    uint64_t p = 0;
    if (mem_alloc(&p, 512) != 0 || mem_free(p) != 0)
        die("the driver refuses");
    if (strcmp(j->what, "pending") == 0)
        leave_pending();
    pthread_barrier_wait(j->start);
    double began = now_ns();
    if (strcmp(j->what, "allocfree") == 0)
        for (long i = 0; i < j->count; i++) {
            if (mem_alloc(&p, 512) != 0)
                die("refused");
            mem_free(p);
        }
    else if (strcmp(j->what, "async") == 0 || strcmp(j->what, "pending") == 0)
        run_async(j);
    else
        run_floor(j);
    j->began = began;
    j->ended = now_ns();
    return NULL;
}

#define MOST_THREADS 2

// Returns the time that one call costs a processor, in ns.
static double run_threads(const char *what, int threads, long count) {
    pthread_t thread[MOST_THREADS];
    struct job job[MOST_THREADS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        job[i] = (struct job){.count = count, .base = (uint64_t)(i + 1) << 40, .start = &start};
        snprintf(job[i].what, sizeof job[i].what, "%s", what);
        pthread_create(&thread[i], NULL, run_job, &job[i]);
    }
    double began = 0, ended = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        if (i == 0 || job[i].began < began)
            began = job[i].began;
        if (job[i].ended > ended)
            ended = job[i].ended;
    }
    return (ended - began) / (double)count;
}

static int worker(long held) {
    void *h = dlopen("libcuda.so.1", RTLD_NOW);
    if (!h)
        die(dlerror());
    void *context;
    int (*init)(unsigned) = (int (*)(unsigned))symbol(h, "cuInit");
    mem_alloc = (int (*)(uint64_t *, size_t))symbol(h, "cuMemAlloc_v2");
    mem_free = (int (*)(uint64_t))symbol(h, "cuMemFree_v2");
    alloc_async = (int (*)(uint64_t *, size_t, void *))symbol(h, "cuMemAllocAsync");
    free_async = (int (*)(uint64_t, void *))symbol(h, "cuMemFreeAsync");
    stream_create_with = (int (*)(void **, unsigned, int))symbol(h, "cuStreamCreateWithPriority");
    stream_create = (int (*)(void **, unsigned))symbol(h, "cuStreamCreate");
    stream_destroy = (int (*)(void *))symbol(h, "cuStreamDestroy_v2");
    int (*retain)(void **, int) = (int (*)(void **, int))symbol(h, "cuDevicePrimaryCtxRetain");
    // The context stays retained, so that it lives on. The stub has one context, current in every
    // thread.
    if (init(0) != 0 || retain(&context, 0) != 0)
        die("the driver does not start");
    for (long i = 0; i < held; i++) {
        uint64_t p;
        if (mem_alloc(&p, 512) != 0)
            die("refused while filling");
        struct ga_entry e = {.key = ((uint64_t)64 << 40) + (uint64_t)i * 512, .bytes = 512}, old;
        ga_table_put(&floor_table, &e, &old);
    }
    printf("ready\n");
    fflush(stdout);
    char what[16];
    int threads;
    long count;
    while (scanf("%15s %d %ld", what, &threads, &count) == 3) {
        printf("%.2f\n", run_threads(what, threads, count));
        fflush(stdout);
    }
    return 0;
}

// Measurement

struct child {
    pid_t pid;
    FILE *to, *from;
};

static struct child start(char *const argv[], const char *preload, const char *folder,
                          const char *socket) {
    int in[2], out[2];
    struct child c;
    if (pipe(in) != 0 || pipe(out) != 0)
        die("pipe");
    c.pid = fork();
    if (c.pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        setenv("LD_LIBRARY_PATH", folder, 1);
        setenv("GPUARB_SOCKET", socket, 1);
        if (preload)
            setenv("LD_PRELOAD", preload, 1);
        execv(argv[0], argv);
        perror(argv[0]);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    c.to = fdopen(in[1], "w");
    c.from = fdopen(out[0], "r");
    char line[64];
    if (!c.to || !c.from || !fgets(line, sizeof line, c.from))
        die("a worker does not start");
    return c;
}

static double ask(struct child *c, const char *what, int threads, long count) {
    double ns;
    fprintf(c->to, "%s %d %ld\n", what, threads, count);
    fflush(c->to);
    if (fscanf(c->from, "%lf", &ns) != 1)
        die("a worker died");
    return ns;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

#define ROUNDS 201

static int rounds = ROUNDS;

// Returns the lower decile: the cost of the code, without other load on the machine.
static double quiet(double values[ROUNDS]) {
    qsort(values, (size_t)rounds, sizeof *values, by_value);
    return values[rounds / 10];
}

static void compare(struct child *bare, struct child *shim, const char *name, const char *what,
                    int threads, long count, bool with_floor) {
    double b[ROUNDS] = {0}, d[ROUNDS] = {0}, f[ROUNDS] = {0};
    for (int i = 0; i < rounds; i++) {
        b[i] = ask(bare, what, threads, count);
        d[i] = ask(shim, what, threads, count);
        f[i] = with_floor ? ask(bare, "floor", threads, count) : 0;
    }
    double driver = quiet(b);
    printf("BenchmarkDriver%s %ld %.2f ns/op\n", name, count * rounds, driver);
    printf("BenchmarkShim%s %ld %.2f ns/op\n", name, count * rounds, quiet(d) - driver);
    if (with_floor)
        printf("BenchmarkFloor%s %ld %.2f ns/op\n", name, count * rounds, quiet(f));
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "worker") == 0)
        return worker(atol(argv[2]));
    if (argc == 2 && strcmp(argv[1], "once") == 0)
        rounds = argc = 1;
    const char *library = argc > 1 ? argv[1] : "build/libgpuarb.so";
    const char *folder = argc > 2 ? argv[2] : "build/sim/stub";
    char *peer_path = argc > 3 ? argv[3] : "build/cshim-test/peer";
    char socket[64], *preload = realpath(library, NULL), *stub = realpath(folder, NULL);
    if (!preload || !stub)
        die("library or driver not found");
    snprintf(socket, sizeof socket, "/tmp/gpuarb-bench-%d.sock", (int)getpid());
    char *peer_argv[] = {peer_path, socket, "limit", "64T", "surplus", "8G",
                         "quiet",   "1",    "able",  "4",   NULL}; // GA_ABLE_OBJECTS
    struct child peer = start(peer_argv, NULL, stub, socket);
    printf("pkg: gpuarb/cshim\n");
    const char *held_names[] = {"0", "1000000"};
    for (int i = 0; i < 2; i++) {
        char held[16], name[64];
        snprintf(held, sizeof held, "%s", held_names[i]);
        char *worker_argv[] = {argv[0], "worker", held, NULL};
        struct child bare = start(worker_argv, NULL, stub, socket);
        struct child shim = start(worker_argv, preload, stub, socket);
        for (int threads = 1; threads <= MOST_THREADS; threads++) {
            snprintf(name, sizeof name, "AllocFree/held=%s/threads=%d", held, threads);
            compare(&bare, &shim, name, "allocfree", threads, threads == 1 ? 4000 : 40000, true);
        }
        if (i == 0) {
            compare(&bare, &shim, "AsyncPair", "async", 1, 4000, false);
            compare(&bare, &shim, "AsyncPair/pending=32000", "pending", 1, 4000, false);
        }
        kill(bare.pid, 9);
        kill(shim.pid, 9);
        waitpid(bare.pid, NULL, 0);
        waitpid(shim.pid, NULL, 0);
    }
    kill(peer.pid, 9);
    waitpid(peer.pid, NULL, 0);
    unlink(socket);
    return 0;
}
