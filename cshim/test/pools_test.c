// SPDX-License-Identifier: Apache-2.0
// pools_test PEER: pools whose blocks are freed by calls that the library does not see, a driver
// that does not report reserved bytes, and a block without memory for its entry. Linked with
// ga_root_alloc and ga_table_put wrapped (-Wl,--wrap), on the simulated driver (DRIVER is its
// path).
#include <dlfcn.h>
#include <stdatomic.h>

#include "core/device.h"
#include "cuda/driver.h"
#include "cuda/hooks.h"
#include "daemon.h"
#include "hook/library.h"
#include "vulkan/memory.h"

extern GA_FN_cuMemAllocAsync cuMemAllocAsync;
extern GA_FN_cuMemFreeAsync cuMemFreeAsync;
extern GA_FN_cuMemPoolTrimTo cuMemPoolTrimTo;
extern GA_FN_cuDeviceSetMemPool cuDeviceSetMemPool;
extern GA_FN_cuCtxCreate_v2 cuCtxCreate_v2;
extern GA_FN_cuCtxSynchronize cuCtxSynchronize;
extern GA_FN_cuStreamCreate cuStreamCreate;
extern GA_FN_cuMemCreate cuMemCreate;
extern GA_FN_cuMemRelease cuMemRelease;
extern GA_FN_cuMipmappedArrayCreate cuMipmappedArrayCreate;
extern GA_FN_cuMipmappedArrayDestroy cuMipmappedArrayDestroy;

#ifndef DRIVER
#define DRIVER "libcuda.so.1"
#endif
#define MIB (1ull << 20)

const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0"; // the simulated driver keeps its records to the end
}

static _Atomic long records;
void *__real_ga_root_alloc(struct ga_root *root, size_t size);
void *__wrap_ga_root_alloc(struct ga_root *root, size_t size);
void *__wrap_ga_root_alloc(struct ga_root *root, size_t size) {
    atomic_fetch_add(&records, 1);
    return __real_ga_root_alloc(root, size);
}

static bool no_memory;
bool __real_ga_table_put(struct ga_table *table, const struct ga_entry *entry,
                         struct ga_entry *old);
bool __wrap_ga_table_put(struct ga_table *table, const struct ga_entry *entry,
                         struct ga_entry *old);
bool __wrap_ga_table_put(struct ga_table *table, const struct ga_entry *entry,
                         struct ga_entry *old) {
    old->key = 0;
    return !no_memory && __real_ga_table_put(table, entry, old);
}

// Returns the number of the driver's first device. It is not 0, because the test has numbered
// another device.
#define DEVICE 1

static struct test_daemon peer;
static ga_stream stream;
static ga_pool pool;

static void holds(uint64_t blocks, uint64_t kept) {
    struct ga_root *root = ga_root_get();
    uint64_t used = test_daemon_show(&peer).used;
    uint64_t counted = atomic_load(&root->devices[DEVICE].pool_unused);
    if (used != blocks + kept || counted != kept)
        fprintf(stderr, "used %llu, unused %llu\n", (unsigned long long)used,
                (unsigned long long)counted);
    CHECK(used == blocks + kept && counted == kept);
}

static ga_address take(size_t bytes) {
    ga_address p;
    CHECK(cuMemAllocAsync(&p, bytes, stream) == 0);
    return p;
}

static void give(ga_address p) {
    CHECK(cuMemFreeAsync(p, stream) == 0 && cuCtxSynchronize() == 0);
}

static ga_result frees_nothing(ga_address p) {
    (void)p;
    return GA_CUDA_NOT_READY;
}

// There is no memory for a block's entry, and the driver does not free the block. The program has
// it, and it stays charged. Later readings release the pool's other bytes.
static void not_remembered(void) {
    GA_FN_cuMemFree_v2 *real = GA_REAL(cuMemFree_v2);
    atomic_store(&ga_driver_functions[GA_ROW_cuMemFree_v2], (void *)frees_nothing);
    no_memory = true;
    ga_address p = take(MIB);
    no_memory = false;
    atomic_store(&ga_driver_functions[GA_ROW_cuMemFree_v2], (void *)real);
    give(take(2 * MIB));
    holds(MIB, 2 * MIB);
    CHECK(cuMemPoolTrimTo(pool, 0) == 0);
    holds(MIB, 0);
    CHECK(real(p) == 0);
}

static void replaced_unseen(void) {
    for (int i = 0; i < 5; i++) {
        ga_address a = take(MIB);
        ga_address c = take(2 * MIB);
        CHECK(GA_REAL(cuMemFree_v2)(a) == 0);
        CHECK(take(MIB) == a); // the driver reuses the address
        holds(3 * MIB, 0);
        give(a);
        holds(2 * MIB, MIB);
        give(c);
        holds(0, 3 * MIB);
        CHECK(cuMemPoolTrimTo(pool, MIB) == 0);
        holds(0, MIB);
        a = take(MIB);
        holds(MIB, 0);
        give(a);
        CHECK(cuMemPoolTrimTo(pool, 0) == 0);
        holds(0, 0);
    }
}

static void without_a_name(void) {
    give(take(MIB));
    CHECK(cuMemPoolTrimTo(pool, 0) == 0);
    GA_FN_cuDeviceGetMemPool *real = GA_REAL(cuDeviceGetMemPool);
    atomic_store(&ga_driver_functions[GA_ROW_cuDeviceGetMemPool], NULL);
    CHECK(cuDeviceSetMemPool(0, pool) == 0); // so that the library reads the pool again
    give(take(MIB));
    holds(0, 0);
    long before = records;
    for (int i = 0; i < 1000; i++) {
        give(take(MIB));
        ga_address p;
        CHECK(cuMemAllocAsync(&p, 1ull << 40, stream) == GA_CUDA_OUT_OF_MEMORY);
    }
    CHECK(records == before);
    holds(0, 0);
    atomic_store(&ga_driver_functions[GA_ROW_cuDeviceGetMemPool], (void *)real);
}

// Memory that CUDA knows by a handle does not count as Vulkan's memory on the same device.
static void is_not_vulkans(void) {
    struct ga_cu_memory_properties properties[8] = {{.type = 1, .location = {1, 0}}};
    struct ga_cu_array3d deep = {.width = 1024, .height = 1024, .format = 0x20, .channels = 1};
    uint64_t held[GA_VK_HEAPS] = {0};
    ga_memory memory;
    ga_mipmap mipmap;
    CHECK(cuMemCreate(&memory, 2 * MIB, properties, 0) == 0);
    CHECK(cuMipmappedArrayCreate(&mipmap, &deep, 1) == 0);
    CHECK(test_daemon_show(&peer).used == 6 * MIB);
    ga_vulkan_memory_held(ga_root_get(), DEVICE, held);
    for (int i = 0; i < GA_VK_HEAPS; i++)
        CHECK(held[i] == 0);
    CHECK(cuMipmappedArrayDestroy(mipmap) == 0 && cuMemRelease(memory) == 0);
    holds(0, 0);
}

int main(int argc, char **argv) {
    static const char *const options[] = {"limit", "8388608", "quiet", "1", NULL};
    char folder[] = "/tmp/gpuarb-pools-XXXXXX", socket_path[64], command[64];
    uint64_t keep = 1 << 30;
    ga_context context;
    CHECK(argc == 2 && mkdtemp(folder));
    snprintf(socket_path, sizeof socket_path, "%s/socket", folder);
    setenv("SIMCUDA_DIR", folder, 1);
    setenv("GPUARB_SOCKET", socket_path, 1);
    peer = test_daemon_start(argv[1], socket_path, options);
    void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    CHECK(driver && ga_library_find(&ga_cuda_interface, NULL));
    ga_result (*default_pool)(ga_pool *, ga_cu_device);
    ga_result (*pool_set)(ga_pool, int, void *);
    *(void **)&default_pool = dlsym(driver, "cuDeviceGetDefaultMemPool");
    *(void **)&pool_set = dlsym(driver, "cuMemPoolSetAttribute");
    CHECK(ga_device_number(ga_root_get(), (const uint8_t[GA_UUID_SIZE]){9}) == DEVICE - 1);
    CHECK(GA_REAL(cuInit)(0) == 0 && cuCtxCreate_v2(&context, 0, 0) == 0);
    CHECK(cuStreamCreate(&stream, 1) == 0);
    CHECK(default_pool(&pool, 0) == 0 && pool_set(pool, 4, &keep) == 0);
    replaced_unseen();
    without_a_name();
    is_not_vulkans();
    not_remembered();
    test_daemon_stop(&peer);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    return 0;
}
