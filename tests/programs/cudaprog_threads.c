// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for threads that race for memory:
//
//   threads T COUNT SIZE SEED    T threads, each COUNT random allocations of up to
//                                SIZE bytes and frees: "threads ok GRANTED REFUSED"
//   racethreads T COUNT SIZE SEED  the same; none frees its last before all are done
//   mapthreads T COUNT           T threads, each COUNT rounds of mapping and unmapping
//                                2M at addresses of their own, and of small arrays:
//                                "mapthreads ok GRANTED REFUSED"
//   endthreads T COUNT           COUNT contexts, every other one the primary one, that end while
//                                T threads take memory, arrays, host memory and streams in each
//   together T SIZE              T threads, each with one block of SIZE bytes at once, which are
//                                freed when all have been answered: "together ok GRANTED REFUSED"
//   retainthreads T              T threads retain the primary context at once, and release it when
//                                all have been answered: "retainthreads ok GRANTED REFUSED"
//   greenthreads T               the same with a green context for each
//   streamthreads T COUNT KEPT   T threads, each COUNT times a stream made and destroyed, or
//                                refused; then each takes up to KEPT: "streamthreads ok TAKEN", as
//                                many as there are at once. They stay until the next time
//   retainaside                  starts a thread that retains the primary context, and answers
//                                without waiting for it
//   retainleave                  ends that thread by a signal, in the middle of its call
//   retainpairs COUNT            COUNT times the primary context is retained and released
#include "cudaprog.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct stress {
    pthread_t thread;
    CUcontext context;
    uint64_t count, size, seed, granted, refused;
    CUresult failed;
    pthread_barrier_t *met; // meeting point of threads that hold their blocks until all are done
};

static uint64_t random_next(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

#define KEPT 64

// Returns a random size: each order of magnitude from 256 bytes up to the given size is equally
// likely.
static size_t random_size(struct stress *s) {
    uint64_t most = s->size >> random_next(&s->seed) % 23;
    return most <= 256 ? (size_t)256 : (size_t)(256 + random_next(&s->seed) % (most - 255));
}

static void *stress_run(void *arg) {
    struct stress *s = arg;
    CUdeviceptr held[KEPT] = {0};
    s->failed = CU(cuCtxSetCurrent)(s->context);
    for (uint64_t i = 0; i < s->count && s->failed == 0; i++) {
        CUdeviceptr *p = &held[random_next(&s->seed) % KEPT];
        if (*p) {
            s->failed = CU(cuMemFree_v2)(*p);
            *p = 0;
            continue;
        }
        CUresult r = CU(cuMemAlloc_v2)(p, random_size(s));
        if (r == 0) {
            s->granted++;
        } else {
            *p = 0;
            s->refused++;
            if (r != 2)
                s->failed = r;
        }
    }
    if (s->met)
        pthread_barrier_wait(s->met);
    for (size_t i = 0; i < KEPT; i++)
        if (held[i] && s->failed == 0)
            s->failed = CU(cuMemFree_v2)(held[i]);
    return NULL;
}

static void *map_run(void *arg);

static void do_threads(const struct command *c) {
    bool maps = strcmp(c->word[0], "mapthreads") == 0;
    bool meet = strcmp(c->word[0], "racethreads") == 0;
    pthread_barrier_t met;
    size_t threads = number(c, 1);
    struct stress *all = calloc(threads, sizeof *all);
    CUcontext context = NULL;
    uint64_t granted = 0, refused = 0;
    CUresult r = CU(cuCtxGetCurrent)(&context);
    char more[64];
    if (!all || (meet && pthread_barrier_init(&met, NULL, (unsigned)threads) != 0))
        abort();
    for (size_t i = 0; i < threads; i++) {
        all[i] = (struct stress){.context = context,
                                 .met = meet ? &met : NULL,
                                 .count = number(c, 2),
                                 .size = number_or(c, 3, 0),
                                 .seed = number_or(c, 4, 0) * 1000003 + i + 1};
        if (pthread_create(&all[i].thread, NULL, maps ? map_run : stress_run, &all[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < threads; i++) {
        pthread_join(all[i].thread, NULL);
        granted += all[i].granted;
        refused += all[i].refused;
        if (all[i].failed)
            r = all[i].failed;
    }
    free(all);
    snprintf(more, sizeof more, "%" PRIu64 " %" PRIu64, granted, refused);
    answer(c, r, more);
}

#define SLOTS 4
#define SLOT (2ull << 20)

struct slots {
    CUdeviceptr base;
    CUarray array;
    bool mapped[SLOTS];
};

// Maps memory, and releases its handle: from then on only the mapping keeps the memory.
static CUresult map_one(CUdeviceptr p) {
    const int properties[8] = {1, 0, 1, device};
    uint64_t handle;
    CUresult r = CU(cuMemCreate)(&handle, SLOT, properties, 0);
    if (r != 0)
        return r;
    r = CU(cuMemMap)(p, SLOT, 0, handle, 0);
    CUresult released = CU(cuMemRelease)(handle);
    return r ? r : released;
}

// Gets the handle back from the mapping, unmaps, and releases the handle.
static CUresult unmap_one(CUdeviceptr p) {
    uint64_t handle;
    CUresult r = CU(cuMemRetainAllocationHandle)(&handle, (void *)(uintptr_t)(p + 1));
    if (r == 0)
        r = CU(cuMemUnmap)(p, SLOT);
    return r ? r : CU(cuMemRelease)(handle);
}

static CUresult swap_array(CUarray *array) {
    const struct {
        size_t width, height;
        int format;
        unsigned int channels;
    } d = {1000, 3, 0x20, 4};
    CUarray old = *array;
    *array = NULL;
    return old ? CU(cuArrayDestroy)(old) : CU(cuArrayCreate_v2)(array, &d);
}

static void map_round(struct stress *s, struct slots *m) {
    uint64_t i = random_next(&s->seed) % (SLOTS + 1);
    CUresult r;
    if (i == SLOTS) {
        r = swap_array(&m->array);
    } else {
        CUdeviceptr p = m->base + i * SLOT;
        r = m->mapped[i] ? unmap_one(p) : map_one(p);
        m->mapped[i] ^= r == 0;
    }
    s->granted += r == 0;
    s->refused += r == 2;
    if (r != 0 && r != 2)
        s->failed = r;
}

static void *map_run(void *arg) {
    struct stress *s = arg;
    struct slots m = {0};
    s->failed = CU(cuCtxSetCurrent)(s->context);
    if (s->failed == 0)
        s->failed = CU(cuMemAddressReserve)(&m.base, SLOTS * SLOT, 0, 0, 0);
    for (uint64_t i = 0; i < s->count && s->failed == 0; i++)
        map_round(s, &m);
    for (size_t i = 0; i < SLOTS; i++)
        if (m.mapped[i] && s->failed == 0)
            s->failed = unmap_one(m.base + i * SLOT);
    if (m.array && s->failed == 0)
        s->failed = CU(cuArrayDestroy)(m.array);
    return NULL;
}

struct taker {
    pthread_t thread;
    CUcontext context;
    _Atomic unsigned *busy;
    CUresult failed; // first failure because the context had ended; the thread's objects have ended
                     // with it
};

static CUresult take_some(void) {
    const struct {
        size_t width, height;
        int format;
        unsigned int channels;
    } d = {16, 16, 0x20, 4};
    CUdeviceptr p;
    CUarray array;
    CUstream s;
    void *host;
    CUresult r = CU(cuMemAlloc_v2)(&p, 4096);
    if (r == 0)
        r = CU(cuStreamCreate)(&s, 1);
    if (r == 0)
        r = CU(cuArrayCreate_v2)(&array, &d);
    if (r == 0)
        r = CU(cuMemAllocHost_v2)(&host, 4096);
    return r == 0 ? CU(cuStreamDestroy_v2)(s) : r;
}

static void *take_run(void *arg) {
    struct taker *t = arg;
    CUresult r = CU(cuCtxSetCurrent)(t->context);
    for (bool first = true; r == 0; first = false) {
        r = take_some();
        *t->busy += first;
    }
    t->failed = r;
    return NULL;
}

static CUresult end_context(CUcontext context, bool primary) {
    if (!primary)
        return CU(cuCtxDestroy_v2)(context);
    CUresult r = CU(cuDevicePrimaryCtxReset_v2)(device);
    return r ? r : CU(cuDevicePrimaryCtxRelease_v2)(device);
}

// Accepts the codes of calls in an ended context: 201 and 709 (no context, or it has ended) and 400
// (the stream that was just made has ended).
static CUresult end_round(unsigned n, bool primary) {
    enum { MOST = 16 };
    struct taker all[MOST] = {0};
    _Atomic unsigned busy = 0;
    CUcontext context;
    CUresult r = primary ? CU(cuDevicePrimaryCtxRetain)(&context, device)
                         : CU(cuCtxCreate_v2)(&context, 0, device);
    n = n < MOST ? n : MOST;
    for (unsigned i = 0; i < n && r == 0; i++) {
        all[i] = (struct taker){.context = context, .busy = &busy};
        if (pthread_create(&all[i].thread, NULL, take_run, &all[i]) != 0)
            abort();
    }
    while (r == 0 && busy < n)
        sched_yield();
    CUresult ended = r == 0 ? end_context(context, primary) : 0;
    for (unsigned i = 0; i < n && r == 0; i++) {
        pthread_join(all[i].thread, NULL);
        CUresult f = all[i].failed;
        ended = f == 201 || f == 709 || f == 400 ? ended : f;
    }
    return r ? r : ended;
}

static void do_endthreads(const struct command *c) {
    CUresult r = 0;
    for (uint64_t i = 0; i < number(c, 2) && r == 0; i++)
        r = end_round((unsigned)number(c, 1), i % 2);
    answer(c, r, "");
}

struct retainer {
    pthread_t thread;
    pthread_barrier_t *met;
    bool green;
    CUcontext context; // used by the command "together" only, as is bytes
    size_t bytes;
    CUresult result, ended;
};

static void *together_run(void *arg) {
    struct retainer *r = arg;
    CUdeviceptr p = 0;
    CUresult set = CU(cuCtxSetCurrent)(r->context);
    pthread_barrier_wait(r->met);
    r->result = set ? set : CU(cuMemAlloc_v2)(&p, r->bytes);
    pthread_barrier_wait(r->met);
    if (r->result == 0)
        r->ended = CU(cuMemFree_v2)(p);
    return NULL;
}

static void *retain_run(void *arg) {
    struct retainer *r = arg;
    CUcontext context = NULL;
    void *green = NULL;
    pthread_barrier_wait(r->met);
    r->result = r->green ? make_green(&green) : CU(cuDevicePrimaryCtxRetain)(&context, device);
    pthread_barrier_wait(r->met);
    if (r->result == 0)
        r->ended =
            r->green ? CU(cuGreenCtxDestroy)(green) : CU(cuDevicePrimaryCtxRelease_v2)(device);
    return NULL;
}

static void do_retainthreads(const struct command *c) {
    enum { MOST = 64 };
    struct retainer all[MOST] = {0};
    size_t n = number(c, 1) < MOST ? number(c, 1) : MOST;
    bool blocks = strcmp(c->word[0], "together") == 0;
    pthread_barrier_t met;
    unsigned granted = 0, refused = 0;
    CUresult failed = 0;
    char more[32];
    if (pthread_barrier_init(&met, NULL, (unsigned)n) != 0)
        abort();
    for (size_t i = 0; i < n; i++) {
        all[i].met = &met;
        all[i].green = strcmp(c->word[0], "greenthreads") == 0;
        all[i].bytes = number_or(c, 2, 0);
        if (blocks && CU(cuCtxGetCurrent)(&all[i].context) != 0)
            abort();
        if (pthread_create(&all[i].thread, NULL, blocks ? together_run : retain_run, &all[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < n; i++) {
        pthread_join(all[i].thread, NULL);
        granted += all[i].result == 0;
        refused += all[i].result == 2;
        if (all[i].ended || (all[i].result && all[i].result != 2))
            failed = all[i].ended ? all[i].ended : all[i].result;
    }
    pthread_barrier_destroy(&met);
    snprintf(more, sizeof more, "%u %u", granted, refused);
    answer(c, failed, more);
}

static pthread_t aside;
static _Atomic int aside_has_left;

static void *aside_run(void *unused) {
    CUcontext context;
    (void)unused;
    (void)CU(cuDevicePrimaryCtxRetain)(&context, device);
    return NULL;
}

static void do_retainaside(const struct command *c) {
    if (pthread_create(&aside, NULL, aside_run, NULL) != 0)
        abort();
    answer(c, 0, "");
}

static void leave_by_end(int unused) {
    (void)unused;
    atomic_store(&aside_has_left, 1);
    syscall(SYS_exit, 0);
}

static void do_retainleave(const struct command *c) {
    struct sigaction action = {.sa_handler = leave_by_end};
    if (sigaction(SIGUSR2, &action, NULL) != 0 || pthread_kill(aside, SIGUSR2) != 0)
        abort();
    while (!atomic_load(&aside_has_left))
        sched_yield();
    answer(c, 0, "");
}

static void do_retainpairs(const struct command *c) {
    CUcontext context;
    CUresult r = 0;
    for (uint64_t i = 0; i < number(c, 1) && r == 0; i++) {
        r = CU(cuDevicePrimaryCtxRetain)(&context, device);
        if (r == 0)
            r = CU(cuDevicePrimaryCtxRelease_v2)(device);
    }
    answer(c, r, "");
}

#define STREAMS_KEPT 64

// Threads stay after a command, so that their streams stay.
struct streamer {
    pthread_t thread;
    CUcontext context;
    uint64_t count, kept, taken;
    pthread_barrier_t *met;
    CUstream has[STREAMS_KEPT];
    CUresult failed;
};

static CUresult destroy_streams(struct streamer *s) {
    CUresult r = 0;
    while (s->taken > 0 && r == 0)
        r = CU(cuStreamDestroy_v2)(s->has[--s->taken]);
    return r;
}

static void *streamer_run(void *arg) {
    struct streamer *s = arg;
    CUresult r = CU(cuCtxSetCurrent)(s->context);
    if (r == 0)
        r = destroy_streams(s);
    for (uint64_t i = 0; i < s->count && r == 0; i++) {
        CUstream one;
        CUresult made = CU(cuStreamCreate)(&one, 1);
        r = made == 0 ? CU(cuStreamDestroy_v2)(one) : made == 2 ? 0 : made;
    }
    pthread_barrier_wait(s->met);
    while (s->taken < s->kept && r == 0 && (r = CU(cuStreamCreate)(&s->has[s->taken], 1)) == 0)
        s->taken++;
    s->failed = r == 2 ? 0 : r;
    return NULL;
}

static void do_streamthreads(const struct command *c) {
    static struct streamer all[16];
    size_t threads = number(c, 1);
    pthread_barrier_t met;
    CUcontext context = NULL;
    CUresult r = CU(cuCtxGetCurrent)(&context);
    uint64_t taken = 0;
    char more[32];
    if (threads > 16 || number(c, 3) > STREAMS_KEPT ||
        pthread_barrier_init(&met, NULL, (unsigned)threads) != 0)
        abort();
    for (size_t i = 0; i < threads; i++) {
        all[i].context = context;
        all[i].count = number(c, 2);
        all[i].kept = number(c, 3);
        all[i].met = &met;
        if (pthread_create(&all[i].thread, NULL, streamer_run, &all[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < threads; i++) {
        pthread_join(all[i].thread, NULL);
        taken += all[i].taken;
        r = all[i].failed ? all[i].failed : r;
    }
    snprintf(more, sizeof more, "%" PRIu64, taken);
    answer(c, r, more);
}

const struct verb threads_verbs[] = {
    {"threads", do_threads},
    {"racethreads", do_threads},
    {"mapthreads", do_threads},
    {"endthreads", do_endthreads},
    {"together", do_retainthreads},
    {"retainthreads", do_retainthreads},
    {"greenthreads", do_retainthreads},
    {"streamthreads", do_streamthreads},
    {"retainaside", do_retainaside},
    {"retainleave", do_retainleave},
    {"retainpairs", do_retainpairs},
    {NULL, NULL},
};
