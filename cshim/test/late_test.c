// SPDX-License-Identifier: Apache-2.0
// late_test PEER: a context ends during an allocation in it. Other threads see the end in two
// steps: its entries are marked; the driver has ended it and they are swept. The two steps run at
// each pair of basic blocks of the allocation in turn, and whatever the pair, no entry stays in the
// table and no byte stays charged. The library is compiled to call __sanitizer_cov_trace_pc at each
// basic block (-fsanitize-coverage=trace-pc), on the simulated driver (DRIVER is its path).
#include <dlfcn.h>
#include <limits.h>

#include "cuda/driver.h"
#include "cuda/ending.h"
#include "cuda/hooks.h"
#include "daemon.h"
#include "hook/library.h"

extern GA_FN_cuCtxCreate_v2 cuCtxCreate_v2;
extern GA_FN_cuMemAlloc_v2 cuMemAlloc_v2;

#ifndef DRIVER
#define DRIVER "libcuda.so.1"
#endif
#define BYTES 4096

#ifdef __clang__
#define IS_NO_BLOCK __attribute__((no_sanitize("coverage")))
#else
#define IS_NO_BLOCK __attribute__((no_sanitize_coverage))
#endif

static struct ga_root *root;
static ga_context context;
static uint64_t ticket; // 0: the end has not begun
static bool watched;    // the allocation is under way
static long block;      // basic blocks of it so far
static long begins_at, ends_at;

static void begin(void) {
    if (ticket == 0)
        ticket = ga_cuda_ending_mark(root, (uint64_t)(uintptr_t)context);
}

static void end(void) {
    begin();
    if (!context)
        return;
    CHECK(GA_REAL(cuCtxDestroy_v2)(context) == 0);
    ga_cuda_ending_gone(root, (uint64_t)(uintptr_t)context, ticket);
    context = NULL;
}

// Not in critical sections: the thread that ends the context would wait for their locks.
void __sanitizer_cov_trace_pc(void); // NOLINT(bugprone-reserved-identifier,cert-dcl37-c)
IS_NO_BLOCK void __sanitizer_cov_trace_pc(void) {
    if (!watched || ga_self.inside || ga_self.away)
        return;
    watched = false;
    if (block == begins_at)
        begin();
    if (block == ends_at)
        end();
    block++;
    watched = true;
}

static void count(void *arg, const struct ga_entry *e) {
    (void)e;
    ++*(long *)arg;
}

// Returns how many basic blocks the allocation had.
static long allocate(long begins, long ends) {
    ga_address p;
    long held = 0;
    CHECK(cuCtxCreate_v2(&context, 0, 0) == 0);
    ticket = 0;
    block = 0;
    begins_at = begins;
    ends_at = ends;
    watched = true;
    ga_result result = cuMemAlloc_v2(&p, BYTES);
    watched = false;
    CHECK(result == 0 || ends < block);
    end();
    ga_self_each(&root->blocks, count, &held);
    if (held)
        fprintf(stderr, "the end at blocks %ld and %ld left %ld entries\n", begins, ends, held);
    CHECK(held == 0);
    return block;
}

int main(int argc, char **argv) {
    static const char *const options[] = {"limit", "8589934592", "quiet", "1", NULL};
    char folder[] = "/tmp/gpuarb-late-XXXXXX", socket_path[64], command[64];
    CHECK(argc == 2 && mkdtemp(folder));
    snprintf(socket_path, sizeof socket_path, "%s/socket", folder);
    setenv("SIMCUDA_DIR", folder, 1);
    setenv("GPUARB_SOCKET", socket_path, 1);
    struct test_daemon peer = test_daemon_start(argv[1], socket_path, options);
    CHECK(dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL) && ga_library_contact(&ga_cuda_interface, NULL));
    CHECK(GA_REAL(cuInit)(0) == 0 && (root = ga_root_get()) != NULL);
    allocate(LONG_MAX, LONG_MAX); // a thread's first call, and the lease
    long blocks = allocate(LONG_MAX, LONG_MAX);
    fprintf(stderr, "%ld blocks\n", blocks);
    CHECK(blocks > 20);
    for (long ends = 0; ends < blocks; ends++)
        for (long begins = 0; begins <= ends; begins++)
            allocate(begins, ends);
    CHECK(test_daemon_show(&peer).used == 0);
    test_daemon_stop(&peer);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    return 0;
}
