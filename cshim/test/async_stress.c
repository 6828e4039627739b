// SPDX-License-Identifier: Apache-2.0
// async_stress PEER [THREADS [STEPS [RESTARTS [SEED]]]]: stress test of stream-ordered memory.
// Threads allocate and free at once, from pools and by graphs, through the wrappers and on the
// simulated driver (DRIVER is its path). The peer dies and starts again meanwhile. Every call must
// be granted or refused. At the end the driver and the peer must count no byte.
#include <dlfcn.h>
#include <pthread.h>

#include "core/device.h"
#include "core/session.h"
#include "cuda/driver.h"
#include "cuda/hooks.h"
#include "daemon.h"
#include "hook/library.h"

#ifndef DRIVER
#define DRIVER "libcuda.so.1"
#endif
#define LIMIT 100000ull // less than the threads want together, so that some requests are refused

// Wrappers, as a program links them.
extern GA_FN_cuMemAlloc_v2 cuMemAlloc_v2;
extern GA_FN_cuMemFree_v2 cuMemFree_v2;
extern GA_FN_cuMemAllocAsync cuMemAllocAsync;
extern GA_FN_cuMemAllocAsync_ptsz cuMemAllocAsync_ptsz;
extern GA_FN_cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync;
extern GA_FN_cuMemFreeAsync cuMemFreeAsync;
extern GA_FN_cuMemFreeAsync_ptsz cuMemFreeAsync_ptsz;
extern GA_FN_cuMemPoolCreate cuMemPoolCreate;
extern GA_FN_cuMemPoolDestroy cuMemPoolDestroy;
extern GA_FN_cuMemPoolTrimTo cuMemPoolTrimTo;
extern GA_FN_cuDeviceSetMemPool cuDeviceSetMemPool;
extern GA_FN_cuDeviceGraphMemTrim cuDeviceGraphMemTrim;
extern GA_FN_cuGraphInstantiateWithFlags cuGraphInstantiateWithFlags;
extern GA_FN_cuGraphLaunch cuGraphLaunch;
extern GA_FN_cuGraphUpload cuGraphUpload;
extern GA_FN_cuGraphExecDestroy cuGraphExecDestroy;
extern GA_FN_cuGraphExecUpdate_v2 cuGraphExecUpdate_v2;
extern GA_FN_cuStreamCreate cuStreamCreate;
extern GA_FN_cuStreamDestroy_v2 cuStreamDestroy_v2;
extern GA_FN_cuStreamBeginCapture_v2 cuStreamBeginCapture_v2;
extern GA_FN_cuStreamEndCapture cuStreamEndCapture;
extern GA_FN_cuStreamSynchronize cuStreamSynchronize;
extern GA_FN_cuCtxCreate_v2 cuCtxCreate_v2;
extern GA_FN_cuCtxSynchronize cuCtxSynchronize;

// Functions of the driver without a wrapper.
static ga_result (*graph_destroy)(ga_graph);
static ga_result (*set_current)(ga_context);
static ga_result (*pool_set)(ga_pool, int, void *);
static ga_result (*default_pool)(ga_pool *, ga_cu_device);
static ga_result (*get_info)(size_t *, size_t *);

static long steps = 300;
static uint64_t seed0 = 1;
static ga_context context;
static ga_pool shared;
static ga_pool exported;       // it could be exported, so the driver keeps its memory
static _Atomic bool last_peer; // true: the peer will not die again
static _Atomic long granted, refused;

// POSIX promises the conversion from object to function pointers; ISO C does not have it.
static void look_up(void *driver) {
    *(void **)&graph_destroy = dlsym(driver, "cuGraphDestroy");
    *(void **)&set_current = dlsym(driver, "cuCtxSetCurrent");
    *(void **)&pool_set = dlsym(driver, "cuMemPoolSetAttribute");
    *(void **)&get_info = dlsym(driver, "cuMemGetInfo_v2");
    *(void **)&default_pool = dlsym(driver, "cuDeviceGetDefaultMemPool");
    CHECK(graph_destroy && set_current && pool_set && get_info && default_pool);
}

// Reports whether the call was granted; any result but granted or refused fails the test.
static bool judge(ga_result result) {
    CHECK(result == GA_CUDA_SUCCESS || result == GA_CUDA_OUT_OF_MEMORY);
    atomic_fetch_add(result ? &refused : &granted, 1);
    return result == GA_CUDA_SUCCESS;
}

#define SLOTS 12

struct worker {
    uint64_t seed;
    ga_stream stream[2];
    ga_address slot[SLOTS];
    bool plain[SLOTS]; // true: not from a pool
    ga_graph graph[2]; // graphs that free what they allocate
    ga_exec own;       // executable graph of one of them
    ga_exec leaving;   // executable graph that leaves a block to the program
    ga_address left;
    bool is_left;
};

static ga_graph make_graph(ga_stream stream, bool frees, size_t bytes, ga_address *address) {
    ga_graph graph = NULL;
    CHECK(cuStreamBeginCapture_v2(stream, 1) == 0); // other threads' calls could break this capture
    CHECK(cuMemAllocAsync(address, bytes, stream) == 0);
    if (frees)
        CHECK(cuMemFreeAsync(*address, stream) == 0);
    CHECK(cuStreamEndCapture(stream, &graph) == 0);
    return graph;
}

static ga_exec make_exec(ga_graph graph) {
    ga_exec exec = NULL;
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0) == 0);
    return exec;
}

static void allocate(struct worker *w, size_t i, ga_stream stream) {
    ga_address p = 0;
    size_t bytes = 1 + test_random(&w->seed) % 9000;
    ga_result result;
    w->plain[i] = false;
    if (test_random(&w->seed) % 4 == 0)
        bytes = 4096; // small, so that blocks are freed and reused on one stream
    switch (test_random(&w->seed) % 6) {
    case 0:
        w->plain[i] = true;
        result = cuMemAlloc_v2(&p, bytes);
        break;
    case 1:
        result = cuMemAllocAsync_ptsz(&p, bytes, NULL);
        break;
    case 2:
        result = cuMemAllocFromPoolAsync(&p, 1 + bytes % 2000, exported, stream);
        break;
    case 3:
        result = cuMemAllocFromPoolAsync(&p, bytes, shared, stream);
        break;
    default:
        result = cuMemAllocAsync(&p, bytes, stream);
    }
    w->slot[i] = judge(result) ? p : 0;
}

static void release(struct worker *w, size_t i, ga_stream stream) {
    uint64_t how = test_random(&w->seed) % 8;
    if (how == 0)
        CHECK(cuMemFree_v2(w->slot[i]) == 0);
    else if (how == 1)
        CHECK(cuMemFreeAsync_ptsz(w->slot[i], NULL) == 0);
    else
        CHECK(cuMemFreeAsync(w->slot[i], stream) == 0);
    w->slot[i] = 0;
}

static void use_graphs(struct worker *w, ga_stream stream) {
    if (test_random(&w->seed) % 2) {
        for (uint64_t n = test_random(&w->seed) % 4; n > 0; n--)
            judge(cuGraphLaunch(w->own, stream));
    } else if (w->is_left) {
        CHECK(cuMemFreeAsync(w->left, w->stream[0]) == 0);
        w->is_left = false;
    } else {
        w->is_left = judge(cuGraphLaunch(w->leaving, w->stream[0]));
    }
}

static ga_pool make_pool(int handle_types) {
    struct ga_cu_pool_properties properties[12] = {
        {.allocation_type = 1, .handle_types = handle_types, .location = {1, 0}}};
    ga_pool pool;
    CHECK(cuMemPoolCreate(&pool, properties) == 0);
    return pool;
}

// Destroys a pool before its blocks are freed: one free is pending, one block stays.
static void outlive(struct worker *w, ga_stream stream) {
    ga_pool pool = make_pool((int)(test_random(&w->seed) % 2));
    ga_address p;
    if (judge(cuMemAllocFromPoolAsync(&p, 2048, pool, stream)))
        CHECK(cuMemFreeAsync(p, stream) == 0);
    for (size_t i = 0; i < SLOTS; i++) {
        if (w->slot[i])
            continue;
        w->plain[i] = false;
        w->slot[i] = judge(cuMemAllocFromPoolAsync(&p, 1024, pool, stream)) ? p : 0;
        break;
    }
    CHECK(cuMemPoolDestroy(pool) == 0);
}

// Changes the pool that the device allocates from.
static void swap_pools(struct worker *w) {
    ga_pool pool = shared;
    if (test_random(&w->seed) % 2)
        CHECK(default_pool(&pool, 0) == 0);
    CHECK(cuDeviceSetMemPool(0, pool) == 0);
}

// Does rare things: destroys a stream or a pool, trims, uploads.
static void shake(struct worker *w, size_t which) {
    char update[64];
    switch (test_random(&w->seed) % 10) {
    case 0:
        CHECK(cuStreamDestroy_v2(w->stream[1]) == 0);
        CHECK(cuStreamCreate(&w->stream[1], 1) == 0);
        break;
    case 1:
        outlive(w, w->stream[which]);
        break;
    case 2:
        CHECK(cuMemPoolTrimTo(shared, test_random(&w->seed) % 20000) == 0);
        break;
    case 3:
        CHECK(cuDeviceGraphMemTrim(0) == 0);
        break;
    case 4:
        judge(cuGraphUpload(w->own, w->stream[which]));
        break;
    case 5:
        swap_pools(w);
        break;
    case 6:
        CHECK(cuMemPoolTrimTo(exported, 0) == 0);
        break;
    case 7:
        CHECK(cuGraphExecUpdate_v2(w->own, w->graph[test_random(&w->seed) % 2], update) == 0);
        break;
    default:
        CHECK(cuStreamSynchronize(w->stream[which]) == 0);
    }
}

static void *work(void *arg) {
    struct worker w = {.seed = seed0 * 104729 + (uint64_t)(uintptr_t)arg};
    CHECK(set_current(context) == 0);
    CHECK(cuStreamCreate(&w.stream[0], 1) == 0 && cuStreamCreate(&w.stream[1], 1) == 0);
    ga_address p;
    w.graph[0] = make_graph(w.stream[0], true, 3001, &p);
    w.graph[1] = make_graph(w.stream[0], true, 7001, &p);
    w.own = make_exec(w.graph[0]);
    ga_graph leaving = make_graph(w.stream[0], false, 3001, &w.left);
    w.leaving = make_exec(leaving);
    for (long i = 0; i < steps || !atomic_load(&last_peer); i++) {
        size_t which = test_random(&w.seed) % 2;
        size_t slot = test_random(&w.seed) % (SLOTS + 4);
        if (slot >= SLOTS)
            use_graphs(&w, w.stream[which]);
        else if (w.slot[slot])
            release(&w, slot, w.stream[which]);
        else
            allocate(&w, slot, w.stream[which]);
        if (test_random(&w.seed) % 32 == 0)
            shake(&w, which);
    }
    for (size_t i = 0; i < SLOTS; i++)
        if (w.slot[i])
            release(&w, i, w.stream[0]);
    if (w.is_left)
        CHECK(cuMemFreeAsync(w.left, w.stream[0]) == 0);
    CHECK(cuGraphExecDestroy(w.own) == 0 && cuGraphExecDestroy(w.leaving) == 0);
    CHECK(graph_destroy(w.graph[0]) == 0 && graph_destroy(w.graph[1]) == 0);
    CHECK(graph_destroy(leaving) == 0);
    CHECK(cuStreamDestroy_v2(w.stream[0]) == 0 && cuStreamDestroy_v2(w.stream[1]) == 0);
    return NULL;
}

static char socket_path[64];
static const char *peer_path;

static struct test_daemon start_peer(void) {
    const char *const options[] = {"limit", "100000", "surplus", "20000", "quiet", "1", NULL};
    return test_daemon_start(peer_path, socket_path, options);
}

static void set_up(void) {
    uint64_t keep = 50000;
    void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    CHECK(driver && ga_library_find(&ga_cuda_interface, NULL));
    look_up(driver);
    CHECK(GA_REAL(cuInit)(0) == 0 && cuCtxCreate_v2(&context, 0, 0) == 0);
    // Let the library use the sanitizer's pthread_create. Keeping the driver's copy stores its
    // handle, in which the library would find libc's function, so that must be done first.
    ga_library_pin_held(&ga_cuda_interface);
    atomic_store(&ga_driver_handle, dlopen(NULL, RTLD_LAZY));
    shared = make_pool(0);
    exported = make_pool(1);
    CHECK(pool_set(shared, 4, &keep) == 0); // sets the pool's release threshold
}

// Frees everything, and makes the pools release what they keep.
static void give_back(void) {
    ga_address p;
    CHECK(cuCtxSynchronize() == 0);
    CHECK(cuMemPoolDestroy(shared) == 0 && cuMemPoolDestroy(exported) == 0);
    CHECK(cuDeviceGraphMemTrim(0) == 0);
    if (judge(cuMemAlloc_v2(&p, LIMIT))) // so that the last peer learns of this session
        CHECK(cuMemFree_v2(p) == 0);
    CHECK(cuCtxSynchronize() == 0);
}

// Returns the number of the driver's first device. It is not 0, because the test has numbered
// another device.
#define DEVICE 1

int main(int argc, char **argv) {
    size_t threads = argc > 2 ? (size_t)atol(argv[2]) : 6;
    long restarts = argc > 4 ? atol(argv[4]) : 3;
    size_t before = 0, after = 0, total;
    CHECK(argc > 1 && threads <= 64);
    peer_path = argv[1];
    steps = argc > 3 ? atol(argv[3]) : steps;
    seed0 = argc > 5 ? (uint64_t)atol(argv[5]) : seed0;
    char folder[] = "/tmp/gpuarb-stress-XXXXXX";
    CHECK(mkdtemp(folder));
    snprintf(socket_path, sizeof socket_path, "%s/socket", folder);
    setenv("SIMCUDA_DIR", folder, 1);
    setenv("GPUARB_SOCKET", socket_path, 1);
    setenv("GPUARB_ON_LOSS", "closed", 1);
    struct test_daemon p = start_peer();
    CHECK(ga_device_number(ga_root_get(), (const uint8_t[GA_UUID_SIZE]){9}) == DEVICE - 1);
    set_up();
    CHECK(get_info(&before, &total) == 0);
    pthread_t thread[64];
    for (size_t i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)(i + 1));
    for (long n = 0; n < restarts; n++) {
        usleep(30000);
        if (n % 2)
            test_daemon_say(&p, "notify all");
        usleep(10000);
        test_daemon_stop(&p);
        usleep(10000);
        p = start_peer();
    }
    atomic_store(&last_peer, true);
    for (size_t i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    give_back();
    CHECK(get_info(&after, &total) == 0);
    struct test_state end = test_daemon_show(&p);
    fprintf(stderr, "granted %ld, refused %ld, used %llu, driver %zd\n", (long)granted,
            (long)refused, end.used, (ssize_t)(before - after));
    struct ga_root *root = ga_root_get();
    uint64_t astray = ga_root_pending(root, DEVICE);
    for (uint32_t i = 0; i < atomic_load(&root->threads_used); i++)
        astray |= atomic_load(&ga_threads_at(root, i)->inflight);
    fprintf(stderr, "unexecuted %llu, unused %llu, astray %llx\n",
            (unsigned long long)atomic_load(&root->devices[DEVICE].unexecuted),
            (unsigned long long)atomic_load(&root->devices[DEVICE].pool_unused),
            (unsigned long long)astray);
    test_daemon_stop(&p);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    CHECK(granted > 0 && end.granted <= LIMIT && end.used == 0 && before == after && astray == 0);
    return 0;
}
