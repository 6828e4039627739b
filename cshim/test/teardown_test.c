// SPDX-License-Identifier: Apache-2.0
// teardown_test PEER: another thread ends a context during a call that makes something in it, at
// each point of the call in turn. Afterwards nothing of the context may be in a table or charged.
// The library is compiled to call __sanitizer_cov_trace_pc at each basic block
// (-fsanitize-coverage=trace-pc). The test uses the simulated driver (DRIVER is its path).
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>

#include "core/interface.h"
#include "cuda/driver.h"
#include "cuda/hooks.h"
#include "cuda/state.h"
#include "daemon.h"
#include "hook/library.h"
#include "memory/state.h"

#define GA_HOOK(symbol, class, bytes, parameters, arguments, ...) extern GA_FN_##symbol symbol;
#define GA_NEED(symbol, parameters)
#include "cuda/hooks.def"
#undef GA_HOOK
#undef GA_NEED

#ifndef DRIVER
#define DRIVER "libcuda.so.1"
#endif
#define BYTES 4096
#define SIDE 64

#ifdef __clang__
#define IS_NO_BLOCK __attribute__((no_sanitize("coverage")))
#else
#define IS_NO_BLOCK __attribute__((no_sanitize_coverage))
#endif

static struct ga_root *root;
static ga_context home; // context that stays, below the context that ends
static struct test_daemon peer;

// End of a context, by another thread

static ga_context context;
static bool ended;
static sem_t asked, answered;

static void *ends_it(void *unused) {
    CHECK(ga_root_get() == root);
    for (;;) {
        CHECK(sem_wait(&asked) == 0);
        CHECK(cuCtxDestroy_v2(context) == 0);
        ended = true;
        CHECK(sem_post(&answered) == 0);
    }
    return unused;
}

static void end_context(void) {
    if (ended)
        return;
    CHECK(sem_post(&asked) == 0);
    CHECK(sem_wait(&answered) == 0);
}

static bool watched; // true: the call is under way
static long block;   // number of its basic blocks so far
static long ends_at;

// Ends the context at the chosen block. Skips critical sections, whose locks the other thread would
// wait for.
void __sanitizer_cov_trace_pc(void); // NOLINT(bugprone-reserved-identifier,cert-dcl37-c)
static __thread bool is_caller;
IS_NO_BLOCK void __sanitizer_cov_trace_pc(void) {
    if (!is_caller || !watched || ga_self.inside || ga_self.mutex_depth)
        return;
    watched = false;
    if (!ga_mutex_is_mine(&ga_memory_of(root)->asking) && block++ == ends_at)
        end_context();
    watched = true;
}

// Calls under test

static ga_stream stream;
static ga_address address;
static struct ga_cu_ipc foreign;
static struct ga_cu_external external = {.type = 1, .bytes = BYTES};
static ga_array array;

static ga_result allocate(void) {
    return cuMemAlloc_v2(&address, BYTES);
}

static ga_result allocate_managed(void) {
    return cuMemAllocManaged(&address, BYTES, 1);
}

static ga_result allocate_host(void) {
    void *at;
    return cuMemAllocHost_v2(&at, BYTES);
}

static ga_result create_array(void) {
    return cuArrayCreate_v2(&array, &(struct ga_cu_array){SIDE, SIDE, 0x20, 1});
}

static ga_result create_stream(void) {
    return cuStreamCreate(&stream, 0);
}

static ga_result open_block(void) {
    return cuIpcOpenMemHandle_v2(&address, foreign, 1);
}

static void make_external(void) {
    int fd = memfd_create("teardown", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
    external.handle[0] = NULL;
    memcpy(external.handle, &fd, sizeof fd);
}

static ga_result open_external(void) {
    void *at;
    return cuImportExternalMemory(&at, &external);
}

static void make_stream(void) {
    CHECK(cuStreamCreate(&stream, 0) == 0);
}

static void make_pooled(void) {
    make_stream();
    CHECK(cuMemAllocAsync(&address, BYTES, stream) == 0);
}

static void make_pooled_elsewhere(void) {
    ga_context popped;
    make_pooled();
    CHECK(GA_REAL(cuCtxPopCurrent_v2)(&popped) == 0);
}

static void make_pooled_by_default(void) {
    stream = NULL;
    CHECK(cuMemAllocAsync(&address, BYTES, NULL) == 0);
}

static ga_result free_pooled(void) {
    return cuMemFreeAsync(address, stream);
}

static ga_result allocate_pooled(void) {
    return cuMemAllocAsync(&address, BYTES, stream);
}

// Frees a pool's block, which outlives the context.
static void free_in_home(void) {
    if (address)
        CHECK(cuMemFree_v2(address) == 0);
}

static const struct call {
    const char *name;
    void (*prepare)(void);
    ga_result (*make)(void);
    void (*end)(void); // frees objects that outlive the context
    bool unseen;       // true: the context was made by a call that the library does not see
} calls[] = {
    {"cuMemAlloc in a context not seen before", NULL, allocate, NULL, true},
    {"cuMemAlloc", NULL, allocate, NULL, false},
    {"cuMemAllocManaged", NULL, allocate_managed, NULL, false},
    {"cuMemAllocHost", NULL, allocate_host, NULL, false},
    {"cuArrayCreate", NULL, create_array, NULL, false},
    {"cuStreamCreate", NULL, create_stream, NULL, false},
    {"cuIpcOpenMemHandle", NULL, open_block, NULL, false},
    {"cuImportExternalMemory", make_external, open_external, NULL, false},
    {"cuMemAllocAsync", make_stream, allocate_pooled, free_in_home, false},
    {"cuMemFreeAsync", make_pooled, free_pooled, free_in_home, false},
    {"cuMemFreeAsync from another context", make_pooled_elsewhere, free_pooled, free_in_home,
     false},
    {"cuMemFreeAsync on the default stream", make_pooled_by_default, free_pooled, free_in_home,
     false},
};

// State after the call

static long entries(struct ga_table *table) {
    long n = 0;
    struct ga_entry e;
    struct ga_walk walk = ga_self_walk(table);
    while (ga_self_next(&walk, &e))
        n++;
    return n;
}

static const char *const kinds[] = {
    "entries",         "streams",        "entries of host memory", "bytes of host memory",
    "imports",         "bytes imported", "imports without a size", "contexts",
    "blocks of pools", "pending bytes",
};
#define KINDS (sizeof kinds / sizeof kinds[0])

static void read_all(long n[KINDS]) {
    struct ga_cuda_state *s = ga_cuda(root);
    *n++ = entries(&root->blocks);
    *n++ = entries(&root->streams);
    *n++ = entries(&root->hosts);
    *n++ = (long)atomic_load(&root->host_held);
    *n++ = entries(&root->imports);
    *n++ = (long)atomic_load(&root->imported[0]);
    *n++ = (long)atomic_load(&root->imports_unknown);
    *n++ = entries(&s->contexts);
    *n++ = entries(&ga_memory_of(root)->pools.blocks);
    *n++ = (long)atomic_load(&root->devices[0].unexecuted);
}

// Runs a call, and returns the number of its basic blocks.
static long run(const struct call *c, long ends) {
    ga_context popped;
    stream = NULL;
    address = 0;
    CHECK((c->unseen ? GA_REAL(cuCtxCreate_v2) : cuCtxCreate_v2)(&context, 0, 0) == 0);
    if (c->prepare)
        c->prepare();
    ended = false;
    block = 0;
    ends_at = ends;
    watched = true;
    ga_result result = c->make();
    watched = false;
    CHECK(result == 0 || ends < block);
    bool freed = c->make == free_pooled && result == 0;
    end_context();
    CHECK(GA_REAL(cuCtxGetCurrent)(&popped) == 0);
    if (popped != home)
        CHECK(GA_REAL(cuCtxPopCurrent_v2)(&popped) == 0);
    if (c->end && !freed)
        c->end();
    return block;
}

// Reports whether anything was left. *reached: the call got to the block at which the context had
// to end.
static bool is_wrong(const struct call *c, long ends, bool *reached) {
    long before[KINDS], after[KINDS];
    bool wrong = false;
    read_all(before);
    *reached = run(c, ends) > ends;
    read_all(after);
    for (size_t i = 0; i < KINDS; i++) {
        if (after[i] == before[i])
            continue;
        fprintf(stderr, "%s: the end at block %ld leaves %ld %s\n", c->name, ends,
                after[i] - before[i], kinds[i]);
        wrong = true;
    }
    return wrong;
}

// Ends the context at each block, and after the call.
static bool try(const struct call *c) {
    bool wrong = false, reached = true;
    run(c, LONG_MAX); // also runs the library's one-time work of a thread
    long ends = -1;
    while (reached)
        wrong |= is_wrong(c, ++ends, &reached);
    CHECK(ends > 20);
    struct test_state told = test_daemon_show(&peer);
    fprintf(stderr, "%s: %ld blocks\n", c->name, ends);
    CHECK(told.streams == 0 && told.contexts == entries(&ga_cuda(root)->contexts));
    return wrong;
}

// Block of another process, which lives as long as that process.
static void make_foreign(void) {
    int out[2];
    CHECK(pipe(out) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
        ga_address p = 0;
        ga_context mine;
        CHECK(driver);
        CHECK(((GA_FN_cuInit *)dlsym(driver, "cuInit"))(0) == 0);
        CHECK(((GA_FN_cuCtxCreate_v2 *)dlsym(driver, "cuCtxCreate_v2"))(&mine, 0, 0) == 0);
        CHECK(((GA_FN_cuMemAlloc_v2 *)dlsym(driver, "cuMemAlloc_v2"))(&p, BYTES) == 0);
        ga_result (*tell)(struct ga_cu_ipc *, ga_address) =
            (ga_result(*)(struct ga_cu_ipc *, ga_address))dlsym(driver, "cuIpcGetMemHandle");
        CHECK(tell(&foreign, p) == 0);
        CHECK(write(out[1], &foreign, sizeof foreign) == sizeof foreign);
        for (;;)
            pause();
    }
    CHECK(read(out[0], &foreign, sizeof foreign) == sizeof foreign);
}

int main(int argc, char **argv) {
    static const char *const options[] = {"limit", "8589934592", "quiet", "1", NULL};
    char folder[] = "/tmp/gpuarb-teardown-XXXXXX", socket_path[64], command[64];
    pthread_t thread;
    CHECK(argc == 2 && mkdtemp(folder));
    snprintf(socket_path, sizeof socket_path, "%s/socket", folder);
    setenv("SIMCUDA_DIR", folder, 1);
    setenv("GPUARB_SOCKET", socket_path, 1);
    make_foreign();
    peer = test_daemon_start(argv[1], socket_path, options);
    CHECK(dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL) && ga_library_find(&ga_cuda_interface, NULL));
    CHECK(GA_REAL(cuInit)(0) == 0 && (root = ga_root_get()) != NULL);
    CHECK(cuCtxCreate_v2(&home, 0, 0) == 0);
    CHECK(sem_init(&asked, 0, 0) == 0 && sem_init(&answered, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, ends_it, NULL) == 0);
    is_caller = true;
    bool wrong = false;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        wrong |= try(&calls[i]);
    CHECK(!wrong);
    ga_interface_reap(root, 0, UINT64_MAX);
    CHECK(test_daemon_show(&peer).used == 0);
    test_daemon_stop(&peer);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    return 0;
}
