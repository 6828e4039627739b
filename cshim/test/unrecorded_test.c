// SPDX-License-Identifier: Apache-2.0
// unrecorded_test PEER: memory and contexts without memory for their record, which the driver does
// not take back; and threads that import one handle at once. Linked with ga_root_alloc and
// ga_table_put wrapped (-Wl,--wrap), on the simulated driver (DRIVER is its path). The OpenCL
// functions are the test's own.
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "core/device.h"
#include "core/link.h"
#include "cuda/driver.h"
#include "cuda/hooks.h"
#include "daemon.h"
#include "hook/library.h"
#include "memory/mapped.h"
#include "opencl/context.h"
#include "opencl/memory.h"
#include "opencl/svm.h"

extern GA_FN_cuCtxCreate_v2 cuCtxCreate_v2;
extern GA_FN_cuCtxSynchronize cuCtxSynchronize;
extern GA_FN_cuDeviceGraphMemTrim cuDeviceGraphMemTrim;
extern GA_FN_cuGraphInstantiateWithFlags cuGraphInstantiateWithFlags;
extern GA_FN_cuGraphLaunch cuGraphLaunch;
extern GA_FN_cuMemAlloc_v2 cuMemAlloc_v2;
extern GA_FN_cuMemAllocAsync cuMemAllocAsync;
extern GA_FN_cuMemCreate cuMemCreate;
extern GA_FN_cuMemFree_v2 cuMemFree_v2;
extern GA_FN_cuMemRelease cuMemRelease;
extern GA_FN_cuStreamBeginCapture_v2 cuStreamBeginCapture_v2;
extern GA_FN_cuStreamCreate cuStreamCreate;
extern GA_FN_cuStreamEndCapture cuStreamEndCapture;

#ifndef DRIVER
#define DRIVER "libcuda.so.1"
#endif
#define MIB (1ull << 20)

const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0"; // the simulated driver keeps its records to the end
}

// Called once, before the library allocates a record.
static void (*before_record)(void);
static bool no_memory;

void *__real_ga_root_alloc(struct ga_root *root, size_t size);
void *__wrap_ga_root_alloc(struct ga_root *root, size_t size);
void *__wrap_ga_root_alloc(struct ga_root *root, size_t size) {
    void (*act)(void) = before_record;
    before_record = NULL;
    if (act)
        act();
    return no_memory ? NULL : __real_ga_root_alloc(root, size);
}

bool __real_ga_table_put(struct ga_table *table, const struct ga_entry *entry,
                         struct ga_entry *old);
bool __wrap_ga_table_put(struct ga_table *table, const struct ga_entry *entry,
                         struct ga_entry *old);
bool __wrap_ga_table_put(struct ga_table *table, const struct ga_entry *entry,
                         struct ga_entry *old) {
    old->key = 0;
    return !no_memory && __real_ga_table_put(table, entry, old);
}

// Numbers of the devices, in the order of their first use: OpenCL's, then the driver's first.
enum { OPENCL, CUDA };

static struct test_daemon peer;
static ga_stream stream;

// Allocates and frees on a device, as a thread does that keeps working there.
static void work_on(uint32_t device) {
    uint16_t tag;
    CHECK(ga_admit(ga_root_get(), device, MIB, GA_MEMORY_PLAIN, &tag));
    ga_release(ga_root_get(), device, MIB, tag);
}

// Checks the change of the charge on each device since the last call. The thread's next calls must
// not change the charge.
static void grew(uint64_t opencl, uint64_t cuda) {
    static uint64_t before[2];
    before[OPENCL] += opencl;
    before[CUDA] += cuda;
    for (uint32_t device = OPENCL; device <= CUDA; device++) {
        work_on(device);
        for (uint32_t d = OPENCL; d <= CUDA; d++) {
            uint64_t used = ga_link_used(ga_root_get(), d);
            if (used != before[d])
                fprintf(stderr, "device %u: %llu bytes, not %llu\n", d, (unsigned long long)used,
                        (unsigned long long)before[d]);
            CHECK(used == before[d]);
        }
    }
}

// CUDA

static ga_result frees_not(ga_address address) {
    (void)address;
    return GA_CUDA_NOT_READY;
}
static ga_result releases_not(ga_memory memory) {
    (void)memory;
    return GA_CUDA_NOT_READY;
}

static void *replace(enum ga_row row, void *function) {
    return atomic_exchange(&ga_driver_functions[row], function);
}

static void block_that_stays(void) {
    void *real = replace(GA_ROW_cuMemFree_v2, (void *)frees_not);
    ga_address p, other;
    no_memory = true;
    CHECK(cuMemAlloc_v2(&p, MIB) == 0);
    no_memory = false;
    grew(0, MIB);
    CHECK(cuMemAlloc_v2(&other, MIB) == 0);
    no_memory =
        true; // the block is freed, the driver refuses, and the entry cannot be inserted again
    CHECK(cuMemFree_v2(other) == GA_CUDA_NOT_READY);
    no_memory = false;
    grew(0, MIB);
    replace(GA_ROW_cuMemFree_v2, real);
}

static void handle_that_stays(void) {
    struct ga_cu_memory_properties properties[8] = {{.type = 1, .location = {1, 0}}};
    ga_memory memory;
    uint64_t held = atomic_load(&ga_root_get()->host_held);
    // After this call there is an unused record, but still no memory for an entry.
    CHECK(cuMemCreate(&memory, 2 * MIB, properties, 0) == 0 && cuMemRelease(memory) == 0);
    grew(0, 0);
    void *real = replace(GA_ROW_cuMemRelease, (void *)releases_not);
    no_memory = true;
    CHECK(cuMemCreate(&memory, 2 * MIB, properties, 0) == 0);
    no_memory = false;
    grew(0, 2 * MIB);
    properties[0].location.type = 2; // host memory
    no_memory = true;
    CHECK(cuMemCreate(&memory, 2 * MIB, properties, 0) == 0);
    no_memory = false;
    CHECK(atomic_load(&ga_root_get()->host_held) == held + 2 * MIB);
    grew(0, 0);
    replace(GA_ROW_cuMemRelease, real);
}

static void free_all(ga_address p) {
    CHECK(cuMemFree_v2(p) == 0 && cuCtxSynchronize() == 0 && cuDeviceGraphMemTrim(0) == 0);
}

// A block that a launch leaves behind has no entry. When the program has freed it, it is no longer
// charged.
static void block_of_a_graph(void) {
    ga_graph graph;
    ga_exec exec;
    ga_address p;
    CHECK(cuStreamBeginCapture_v2(stream, 1) == 0 && cuMemAllocAsync(&p, MIB, stream) == 0);
    CHECK(cuStreamEndCapture(stream, &graph) == 0);
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0) == 0);
    CHECK(cuGraphLaunch(exec, stream) == 0); // after this the pool of graphs has a record
    free_all(p);
    grew(0, 0);
    no_memory = true;
    CHECK(cuGraphLaunch(exec, stream) == 0);
    no_memory = false;
    free_all(p);
    grew(0, 0);
}

// Two threads import one block: its handle has two references.

static const uint64_t shared = 0x7000;

static void *import(void *unused) {
    (void)unused;
    ga_memory_mapped_imported(ga_root_get(), shared, CUDA);
    return NULL;
}

static void import_elsewhere(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, import, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void imported_twice(void) {
    struct ga_root *root = ga_root_get();
    before_record = import_elsewhere;
    import(NULL);
    CHECK(!before_record && atomic_load(&root->imports_unknown) == 1);
    for (uint32_t references = 2; references > 0; references--) {
        struct ga_memory_mapped *m = ga_memory_mapped_release(root, shared);
        CHECK(m && atomic_load(&root->imports_unknown) == 1);
        ga_memory_mapped_drop(root, m, 1);
    }
    CHECK(!ga_memory_mapped_release(root, shared) && atomic_load(&root->imports_unknown) == 0);
}

// OpenCL

static int of_device, of_context, of_memory; // handles point to these
#define DEVICE ((ga_cl_device)(void *)&of_device)
#define CONTEXT ((ga_cl_context)(void *)&of_context)
#define MEMORY ((ga_cl_mem)(void *)&of_memory)

static ga_cl_int context_info(ga_cl_context context, ga_cl_uint what, size_t size, void *value,
                              size_t *needed) {
    ga_cl_device device = DEVICE;
    CHECK(context == CONTEXT && what == GA_CL_CONTEXT_DEVICES && size >= sizeof device);
    memcpy(value, &device, sizeof device);
    *needed = sizeof device;
    return GA_CL_SUCCESS;
}

static ga_cl_int device_info(ga_cl_device device, ga_cl_uint what, size_t size, void *value,
                             size_t *needed) {
    CHECK(device == DEVICE);
    (void)needed;
    memset(value, 0, size);
    if (what == GA_CL_DEVICE_UUID)
        *(uint8_t *)value = 9;
    return what == GA_CL_DEVICE_UUID || what == GA_CL_DEVICE_TYPE ? GA_CL_SUCCESS
                                                                  : GA_CL_INVALID_VALUE;
}

static ga_cl_int keeps_memory(ga_cl_mem memory) {
    CHECK(memory == MEMORY);
    return GA_CL_INVALID_OPERATION;
}

static ga_cl_int keeps_context(ga_cl_context context) {
    CHECK(context == CONTEXT);
    return GA_CL_INVALID_OPERATION;
}

static ga_cl_int runs_no_command(ga_cl_queue queue, ga_cl_uint count, ga_cl_address *addresses,
                                 ga_cl_free *function, void *arg, ga_cl_uint waits,
                                 const ga_cl_event *wait_for, ga_cl_event *event) {
    (void)queue, (void)count, (void)addresses, (void)function, (void)arg, (void)waits;
    (void)wait_for, (void)event;
    no_memory = true;
    return GA_CL_INVALID_OPERATION;
}

static ga_cl_address allocates(ga_cl_context context, ga_cl_bits flags, size_t size,
                               ga_cl_uint alignment) {
    (void)context, (void)flags, (void)size, (void)alignment;
    return &of_memory;
}

static void opencl_functions(void) {
    ga_opencl_functions[GA_OPENCL_ROW_clGetContextInfo] = (void *)context_info;
    ga_opencl_functions[GA_OPENCL_ROW_clGetDeviceInfo] = (void *)device_info;
    ga_opencl_functions[GA_OPENCL_ROW_clReleaseMemObject] = (void *)keeps_memory;
    ga_opencl_functions[GA_OPENCL_ROW_clReleaseContext] = (void *)keeps_context;
}

static void object_that_stays(void) {
    struct ga_allocation c = {.full = 0};
    ga_cl_int status = 0;
    CHECK(ga_opencl_memory_ask(&c, CONTEXT, 0, MIB, GA_MEMORY_PLAIN) && c.root);
    no_memory = true;
    CHECK(ga_opencl_memory_made(&c, MEMORY, &status) == MEMORY && status == 0);
    no_memory = false;
    grew(MIB, 0);
}

static void shared_block_that_stays(void) {
    ga_cl_address p = ga_opencl_svm_alloc(allocates, CONTEXT, 0, MIB, 0);
    CHECK(p);
    CHECK(ga_opencl_svm_enqueue_free(runs_no_command, NULL, 1, &p, NULL, NULL, 0, NULL, NULL) != 0);
    no_memory = false;
    grew(MIB, 0);
}

static void context_that_stays(void) {
    struct ga_opencl_context_request s = {.slots.full = 0};
    const ga_cl_device device = DEVICE;
    ga_cl_int status = 0;
    long long before = test_daemon_show(&peer).contexts;
    CHECK(ga_opencl_context_ask(&s, &device, 1) && s.root);
    no_memory = true;
    CHECK(ga_opencl_context_made(&s, CONTEXT, &status) == CONTEXT && status == 0);
    no_memory = false;
    CHECK(test_daemon_show(&peer).contexts == before + 1);
}

int main(int argc, char **argv) {
    static const char *const options[] = {"limit", "67108864", "quiet", "1", NULL};
    char folder[] = "/tmp/gpuarb-unrecorded-XXXXXX", socket_path[64], command[64];
    ga_context context;
    CHECK(argc == 2 && mkdtemp(folder));
    snprintf(socket_path, sizeof socket_path, "%s/socket", folder);
    setenv("SIMCUDA_DIR", folder, 1);
    setenv("GPUARB_SOCKET", socket_path, 1);
    peer = test_daemon_start(argv[1], socket_path, options);
    CHECK(dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL) && ga_library_find(&ga_cuda_interface, NULL));
    CHECK(ga_device_number(ga_root_get(), (const uint8_t[GA_UUID_SIZE]){9}) == OPENCL);
    CHECK(GA_REAL(cuInit)(0) == 0 && cuCtxCreate_v2(&context, 0, 0) == 0);
    CHECK(cuStreamCreate(&stream, 1) == 0);
    imported_twice();
    block_that_stays();
    handle_that_stays();
    block_of_a_graph();
    opencl_functions();
    object_that_stays();
    shared_block_that_stays();
    context_that_stays();
    test_daemon_stop(&peer);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    return 0;
}
