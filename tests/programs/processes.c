// SPDX-License-Identifier: Apache-2.0
// Runs a story, and has the functions that all stories use (processes.h).
#include "processes.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static CUcontext context;

void say(const char *format, ...) {
    char line[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    line[n++] = '\n';
    // Writes at once: a buffer would be inherited by a child.
    if (write(1, line, (size_t)n) != n)
        _exit(3);
}

void at(const char *where) {
    char c = 0;
    say("at %s", where);
    while (c != '\n') {
        ssize_t n = read(0, &c, 1);
        if (n == 0 || (n < 0 && errno != EINTR))
            _exit(3); // the test has ended
    }
}

void give_up(const char *what) {
    say("%s: %s", what, strerror(errno));
    _exit(4);
}

void begin(void) {
    CUresult r = CU(cuInit)(0);
    if (r == 0)
        r = CU(cuCtxCreate_v2)(&context, 0, 0);
    if (r != 0) {
        say("begin err %d", r);
        exit(5);
    }
}

struct crowd {
    pthread_t thread[CROWD];
    int rounds;
    atomic_bool stop;
    atomic_int failures;
    CUdeviceptr kept[CROWD];
};

static void round_of(struct crowd *c) {
    CUdeviceptr p = 0;
    CUstream s = NULL;
    if (CU(cuMemAlloc_v2)(&p, MIB) != 0 || CU(cuMemFree_v2)(p) != 0)
        atomic_fetch_add(&c->failures, 1);
    if (CU(cuStreamCreate)(&s, 0) != 0 || CU(cuStreamDestroy_v2)(s) != 0)
        atomic_fetch_add(&c->failures, 1);
}

static void *live(void *arg) {
    struct crowd *c = arg;
    if (CU(cuCtxSetCurrent)(context) != 0)
        atomic_fetch_add(&c->failures, 1);
    for (int i = 0; i != c->rounds && !atomic_load(&c->stop); i++)
        round_of(c);
    return NULL;
}

struct crowd *crowd_start(int rounds) {
    struct crowd *c = calloc(1, sizeof *c);
    must(c != NULL, "calloc");
    c->rounds = rounds;
    for (int i = 0; i < CROWD; i++)
        must(pthread_create(&c->thread[i], NULL, live, c) == 0, "pthread_create");
    return c;
}

void crowd_stop(struct crowd *c, const char *when) {
    atomic_store(&c->stop, c->rounds < 0);
    for (int i = 0; i < CROWD; i++)
        must(pthread_join(c->thread[i], NULL) == 0, "pthread_join");
    say("crowd %s: %d failures", when, atomic_load(&c->failures));
    free(c);
}

static CUdeviceptr taken[CROWD];
static pthread_barrier_t together;

static void *take(void *arg) {
    CUdeviceptr *p = arg;
    CUresult r = CU(cuCtxSetCurrent)(context);
    pthread_barrier_wait(&together);
    if (r == 0)
        r = CU(cuMemAlloc_v2)(p, 100 * MIB);
    return (void *)(intptr_t)r;
}

void crowd_take(const char *when) {
    pthread_t thread[CROWD];
    pthread_barrier_init(&together, NULL, CROWD);
    for (int i = 0; i < CROWD; i++)
        must(pthread_create(&thread[i], NULL, take, &taken[i]) == 0, "pthread_create");
    for (int i = 0; i < CROWD; i++) {
        void *r = NULL;
        must(pthread_join(thread[i], &r) == 0, "pthread_join");
        say("%s: thread %d takes 100 MiB: %d", when, i, (int)(intptr_t)r);
    }
}

void crowd_give(const char *when) {
    for (int i = 0; i < CROWD; i++)
        say("%s: given back: %d", when, CU(cuMemFree_v2)(taken[i]));
}

int main(int argc, char **argv) {
    static const struct story *const all[] = {births, restrictions, threads, stops};
    if (argc < 2 || cu_open() != 0)
        return 1;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (const struct story *s = all[i]; s->name; s++)
            if (strcmp(s->name, argv[1]) == 0)
                return s->tell(argv + 2);
    fprintf(stderr, "processes: there is no story %s\n", argv[1]);
    return 2;
}
