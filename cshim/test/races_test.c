// SPDX-License-Identifier: Apache-2.0
// races_test PEER: races between the library's questions to the driver and other threads. Each test
// replaces a function of the driver. The replacement makes another thread act before the driver
// answers. Linked with ga_os_sleep_us wrapped (-Wl,--wrap), on the simulated driver (DRIVER is its
// path).
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/device.h"
#include "cuda/driver.h"
#include "cuda/hooks.h"
#include "daemon.h"
#include "hook/library.h"

extern GA_FN_cuMemAllocAsync cuMemAllocAsync;
extern GA_FN_cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync;
extern GA_FN_cuMemFreeAsync cuMemFreeAsync;
extern GA_FN_cuMemFree_v2 cuMemFree_v2;
extern GA_FN_cuMemPoolCreate cuMemPoolCreate;
extern GA_FN_cuMemPoolDestroy cuMemPoolDestroy;
extern GA_FN_cuMemPoolTrimTo cuMemPoolTrimTo;
extern GA_FN_cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRetain;
extern GA_FN_cuCtxSetCurrent cuCtxSetCurrent;
extern GA_FN_cuCtxSynchronize cuCtxSynchronize;
extern GA_FN_cuCtxFromGreenCtx cuCtxFromGreenCtx;
extern GA_FN_cuGreenCtxCreate cuGreenCtxCreate;
extern GA_FN_cuStreamCreate cuStreamCreate;
extern GA_FN_cuStreamDestroy_v2 cuStreamDestroy_v2;
extern GA_FN_cuStreamSynchronize cuStreamSynchronize;

#ifndef DRIVER
#define DRIVER "libcuda.so.1"
#endif
#define MIB (1ull << 20)
#define GRANULE (64 * MIB)
#define LIMIT "8388608" // less than a granule

const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0"; // the simulated driver keeps its records to the end
}

// Returns the number of the driver's first device. It is not 0, because the test has numbered
// another device.
#define DEVICE 1

static struct test_daemon peer;
static ga_context context;
static ga_pool of_device;

// Replaces the driver's function of a row, and returns the driver's.
static void *replace(enum ga_row row, void *function) {
    return atomic_exchange(&ga_driver_functions[row], function);
}

// Runs a function in another thread, and waits for its end.
static void *enter(void *act) {
    CHECK(cuCtxSetCurrent(context) == 0);
    ((void (*)(void))act)();
    return NULL;
}
static void elsewhere(void (*act)(void)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, enter, (void *)act) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void has_unexecuted(uint64_t bytes) {
    uint64_t late = atomic_load(&ga_root_get()->devices[DEVICE].unexecuted);
    if (late != bytes)
        fprintf(stderr, "unexecuted %llu\n", (unsigned long long)late);
    CHECK(late == bytes);
}

static void is_used(uint64_t bytes) {
    uint64_t used = test_daemon_show(&peer).used;
    if (used != bytes)
        fprintf(stderr, "used %llu\n", (unsigned long long)used);
    CHECK(used == bytes);
}

static ga_address take(size_t bytes, ga_stream stream) {
    ga_address p;
    CHECK(cuMemAllocAsync(&p, bytes, stream) == 0);
    return p;
}

static void give_back_all(void) {
    CHECK(cuCtxSynchronize() == 0 && cuMemPoolTrimTo(of_device, 0) == 0);
    has_unexecuted(0);
    is_used(0);
}

// Two threads allocate from a new pool at once. The driver makes the pool one granule large, which
// exceeds the budget. Neither thread may be refused because of this rounding.

static GA_FN_cuMemAllocAsync *alloc;
static ga_stream streams[2];
static ga_address blocks[2];

static void allocate_too(void) {
    blocks[1] = take(MIB, streams[1]);
}

static ga_result alloc_beside(ga_address *address, size_t bytes, ga_stream stream) {
    replace(GA_ROW_cuMemAllocAsync, (void *)alloc);
    elsewhere(allocate_too);
    return alloc(address, bytes, stream);
}

static void first_at_once(void) {
    *(void **)&alloc = replace(GA_ROW_cuMemAllocAsync, (void *)alloc_beside);
    blocks[0] = take(MIB, streams[0]);
    is_used(2 * MIB);
    for (int i = 0; i < 2; i++)
        CHECK(cuMemFreeAsync(blocks[i], streams[i]) == 0);
    give_back_all();
}

// A stream is destroyed. While the library asks whether its frees have executed, another thread
// allocates the freed bytes, and another stream gets the record.

static GA_FN_cuStreamQuery *query;

static ga_result never_passes(ga_stream stream) {
    (void)stream;
    return GA_CUDA_NOT_READY;
}

static void free_elsewhere(void) {
    CHECK(take(MIB, streams[0]) == blocks[0]);
    CHECK(cuMemFreeAsync(blocks[1], streams[1]) == 0);
}

static ga_result query_late(ga_stream stream) {
    replace(GA_ROW_cuStreamQuery, (void *)never_passes);
    elsewhere(free_elsewhere);
    return never_passes(stream);
}

static void record_changes_hands(void) {
    *(void **)&query = replace(GA_ROW_cuStreamQuery, (void *)query_late);
    blocks[0] = take(MIB, streams[0]);
    blocks[1] = take(2 * MIB, streams[1]);
    CHECK(cuMemFreeAsync(blocks[0], streams[0]) == 0);
    CHECK(cuStreamDestroy_v2(streams[0]) == 0);
    ga_interface_reap(ga_root_get(), DEVICE, 1);
    has_unexecuted(2 * MIB); // the other stream has not executed its free
    replace(GA_ROW_cuStreamQuery, (void *)query);
    CHECK(cuMemFree_v2(blocks[0]) == 0);
    CHECK(cuStreamCreate(&streams[0], 1) == 0);
    give_back_all();
}

// One thread frees the last block of a pool, and asks the driver about the pool. Meanwhile another
// thread destroys the pool. The driver must not be asked about a destroyed pool.

static GA_FN_cuMemPoolGetAttribute *read_pool;
static GA_FN_cuMemPoolDestroy *destroy_pool;
static ga_pool own;
static _Atomic bool asks, waits, destroyed;

void __real_ga_os_sleep_us(uint64_t us);
void __wrap_ga_os_sleep_us(uint64_t us);
void __wrap_ga_os_sleep_us(uint64_t us) {
    atomic_store(&waits, true);
    __real_ga_os_sleep_us(us);
}

static ga_result destroy_seen(ga_pool pool) {
    CHECK(!atomic_load(&asks));
    atomic_store(&destroyed, true);
    return destroy_pool(pool);
}

static void *destroy_own(void *unused) {
    (void)unused;
    CHECK(cuCtxSetCurrent(context) == 0 && cuMemPoolDestroy(own) == 0);
    return NULL;
}

static pthread_t destroyer;

static ga_result read_slowly(ga_pool pool, int attribute, void *value) {
    replace(GA_ROW_cuMemPoolGetAttribute, (void *)read_pool);
    atomic_store(&asks, true);
    atomic_store(&waits, false);
    CHECK(pthread_create(&destroyer, NULL, destroy_own, NULL) == 0);
    while (!atomic_load(&waits))
        ga_os_yield();
    ga_result result = read_pool(pool, attribute, value);
    atomic_store(&asks, false);
    return result;
}

static void destroyed_while_read(void) {
    struct ga_cu_pool_properties properties[12] = {{.allocation_type = 1, .location = {1, 0}}};
    ga_address p;
    CHECK(cuMemPoolCreate(&own, properties) == 0);
    CHECK(cuMemAllocFromPoolAsync(&p, MIB, own, streams[0]) == 0);
    *(void **)&read_pool = replace(GA_ROW_cuMemPoolGetAttribute, (void *)read_slowly);
    *(void **)&destroy_pool = replace(GA_ROW_cuMemPoolDestroy, (void *)destroy_seen);
    CHECK(cuMemFree_v2(p) == 0);
    CHECK(pthread_join(destroyer, NULL) == 0 && atomic_load(&destroyed));
    replace(GA_ROW_cuMemPoolDestroy, (void *)destroy_pool);
    is_used(0);
}

// Synchronising a green context waits only for that context's streams.
static void green_alone(void) {
    uint64_t resources[64] = {0};
    ga_green green;
    ga_context converted;
    *(void **)&query = replace(GA_ROW_cuStreamQuery, (void *)never_passes);
    CHECK(cuGreenCtxCreate(&green, resources, 0, 1) == 0);
    CHECK(cuCtxFromGreenCtx(&converted, green) == 0);
    CHECK(cuMemFreeAsync(take(MIB, streams[0]), streams[0]) == 0);
    CHECK(cuCtxSetCurrent(converted) == 0 && cuCtxSynchronize() == 0);
    has_unexecuted(MIB);
    CHECK(cuCtxSetCurrent(context) == 0 && cuCtxSynchronize() == 0);
    has_unexecuted(0);
    replace(GA_ROW_cuStreamQuery, (void *)query);
    give_back_all();
}

static void set_up(void) {
    void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    CHECK(driver && ga_library_find(&ga_cuda_interface, NULL));
    GA_FN_cuDeviceGetMemPool *pool_of;
    *(void **)&pool_of = dlsym(driver, "cuDeviceGetDefaultMemPool");
    CHECK(ga_device_number(ga_root_get(), (const uint8_t[GA_UUID_SIZE]){9}) == DEVICE - 1);
    CHECK(GA_REAL(cuInit)(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0);
    CHECK(cuCtxSetCurrent(context) == 0 && pool_of(&of_device, 0) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(cuStreamCreate(&streams[i], 1) == 0);
    // Make the library find the sanitizer's pthread_create instead of libc's. async_stress.c says
    // why the driver's copy must be kept first.
    ga_library_pin_held(&ga_cuda_interface);
    atomic_store(&ga_driver_handle, dlopen(NULL, RTLD_LAZY));
}

int main(int argc, char **argv) {
    static const char *const options[] = {"limit", LIMIT, "quiet", "1", NULL};
    char folder[] = "/tmp/gpuarb-races-XXXXXX", socket_path[64], command[64];
    CHECK(argc == 2 && mkdtemp(folder));
    snprintf(socket_path, sizeof socket_path, "%s/socket", folder);
    setenv("SIMCUDA_DIR", folder, 1);
    setenv("SIMCUDA_POOL_GRANULE", "64M", 1);
    setenv("GPUARB_SOCKET", socket_path, 1);
    peer = test_daemon_start(argv[1], socket_path, options);
    set_up();
    first_at_once();
    record_changes_hands();
    destroyed_while_read();
    green_alone();
    test_daemon_stop(&peer);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    return 0;
}
