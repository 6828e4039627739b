// SPDX-License-Identifier: Apache-2.0
// jumps_test PEER: an allocation, its free in stream order and the look at what has executed are
// left by a jump, as a signal handler of the program's can, in each of the library's basic blocks
// in turn. Wherever that was, nothing stays late for ever. The library is compiled to call
// __sanitizer_cov_trace_pc at each (-fsanitize-coverage=trace-pc), and linked with two functions
// wrapped (-Wl,--wrap), on the simulated driver (DRIVER is its path).
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>

#include "core/device.h"
#include "cuda/driver.h"
#include "cuda/hooks.h"
#include "daemon.h"
#include "hook/library.h"

extern GA_FN_cuMemAllocAsync cuMemAllocAsync;
extern GA_FN_cuMemFreeAsync cuMemFreeAsync;
extern GA_FN_cuCtxCreate_v2 cuCtxCreate_v2;
extern GA_FN_cuCtxSynchronize cuCtxSynchronize;
extern GA_FN_cuStreamCreate cuStreamCreate;

#ifndef DRIVER
#define DRIVER "libcuda.so.1"
#endif
#define BYTES 4096
#define DEVICE 0

#ifdef __clang__
#define IS_NO_BLOCK __attribute__((no_sanitize("coverage")))
#else
#define IS_NO_BLOCK __attribute__((no_sanitize_coverage))
#endif

static sigjmp_buf back;
static long left = LONG_MAX; // so many blocks, before the jump
static bool blocked;         // nothing can jump while the library blocks signals
static pthread_t program;

void __sanitizer_cov_trace_pc(void); // NOLINT(bugprone-reserved-identifier,cert-dcl37-c)
IS_NO_BLOCK void __sanitizer_cov_trace_pc(void) {
    if (blocked || !pthread_equal(pthread_self(), program) || left-- > 0)
        return;
    left = LONG_MAX;
    siglongjmp(back, 1);
}

uint64_t __real_ga_os_block_signals(void);
uint64_t __wrap_ga_os_block_signals(void);
IS_NO_BLOCK uint64_t __wrap_ga_os_block_signals(void) {
    blocked = true;
    return __real_ga_os_block_signals();
}

void __real_ga_os_restore_signals(uint64_t before);
void __wrap_ga_os_restore_signals(uint64_t before);
IS_NO_BLOCK void __wrap_ga_os_restore_signals(uint64_t before) {
    __real_ga_os_restore_signals(before);
    blocked = false;
}

static ga_stream stream;

// True: it came to its end.
IS_NO_BLOCK static bool jump_after(long blocks) {
    ga_address p;
    if (sigsetjmp(back, 1) != 0)
        return false;
    left = blocks;
    if (cuMemAllocAsync(&p, BYTES, stream) == 0)
        cuMemFreeAsync(p, stream);
    cuCtxSynchronize();
    return true;
}

// Another call, which is not left, finds what was left behind.
static void sweep(void) {
    struct ga_root *root = ga_root_get();
    long most = LONG_MAX / 2, late = 0;
    CHECK(jump_after(most));
    most -= left;
    for (long blocks = 0; blocks < most; blocks++) {
        jump_after(blocks);
        CHECK(jump_after(LONG_MAX));
        late += atomic_exchange(&root->devices[DEVICE].late, 0) != 0;
    }
    fprintf(stderr, "late after %ld of %ld jumps\n", late, most);
    CHECK(late == 0 && most > 100);
}

int main(int argc, char **argv) {
    static const char *const options[] = {"limit", "8589934592", "quiet", "1", NULL};
    char folder[] = "/tmp/gpuarb-jumps-XXXXXX", socket_path[64], command[64];
    ga_context context;
    program = pthread_self();
    CHECK(argc == 2 && mkdtemp(folder));
    snprintf(socket_path, sizeof socket_path, "%s/socket", folder);
    setenv("SIMCUDA_DIR", folder, 1);
    setenv("GPUARB_SOCKET", socket_path, 1);
    struct test_daemon peer = test_daemon_start(argv[1], socket_path, options);
    CHECK(dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL) && ga_library_contact(&ga_cuda_interface, NULL));
    CHECK(GA_REAL(cuInit)(0) == 0 && cuCtxCreate_v2(&context, 0, 0) == 0);
    CHECK(cuStreamCreate(&stream, 1) == 0);
    jump_after(LONG_MAX); // what is done once: a thread, a pool, a connection
    sweep();
    test_daemon_stop(&peer);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    return 0;
}
