// SPDX-License-Identifier: Apache-2.0
//
// Captures and graphs: what is captured is not done, memory of a graph comes with its launch, and
// calls that no capture allows end it.

#include "testlib.h"

#define MIB (1ull << 20)

enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { NONE, ACTIVE, INVALIDATED };

#define cuBegin CU(cuStreamBeginCapture_v2, CUstream, int)
#define cuEnd CU(cuStreamEndCapture, CUstream, uintptr_t *)
#define cuInstantiate CU(cuGraphInstantiateWithFlags, uintptr_t *, uintptr_t, unsigned long long)
#define cuLaunch CU(cuGraphLaunch, uintptr_t, CUstream)
#define cuMemset8 CU(cuMemsetD8Async, CUdeviceptr, unsigned char, size_t, CUstream)

static int status(CUstream s) {
    int v = -1;
    CHECK(CU(cuStreamIsCapturing, CUstream, int *)(s, &v), 0);
    return v;
}

static CUstream stream(void) {
    CUstream s;
    CHECK(cuStreamCreate(&s, 0), 0);
    return s;
}

static void memory_comes_with_the_launch(void) {
    CUstream s = stream();
    CUdeviceptr p, outside;
    uintptr_t graph, exec;
    unsigned char byte = 0;
    size_t before = free_bytes(), count = 0;
    CHECK(cuMemAlloc(&outside, 1), 0);
    CHECK(cuBegin(s, RELAXED), 0);
    CHECK(status(s), ACTIVE);
    CHECK(cuMemAllocAsync(&p, MIB, s), 0);
    CHECK(cuMemset8(p, 5, MIB, s), 0);
    CHECK(CU(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, size_t, CUstream)(outside, p, 1, s),
          0);
    CHECK(cuMemFreeAsync(outside, s), 1); // not the graph's
    CHECK(cuMemFreeAsync(p, s), 0);
    CHECK(cuEnd(s, &graph), 0);
    CHECK(status(s), NONE);
    CHECK(CU(cuGraphGetNodes, uintptr_t, uintptr_t *, size_t *)(graph, NULL, &count), 0);
    CHECK(count, 4);
    CHECK(cuInstantiate(&exec, graph, 0), 0);
    CHECK(CU(cuGraphDestroy, uintptr_t)(graph), 0);
    CHECK(before - free_bytes(), 1);
    for (int i = 0; i < 3; i++) {
        struct gate g;
        gate_put(&g, s);
        CHECK(cuLaunch(exec, s), 0);
        CHECK(before - free_bytes(), MIB + 1);
        CHECK(cuLaunch(exec, s), 0); // it frees what it allocates: the same memory again
        CHECK(before - free_bytes(), MIB + 1);
        gate_open(&g);
        CHECK(cuStreamSynchronize(s), 0);
        CHECK(before - free_bytes(), MIB + 1); // the graph pool keeps it
    }
    CHECK(cuMemcpyDtoH(&byte, outside, 1), 0);
    CHECK(byte, 5);
    CHECK(CU(cuDeviceGraphMemTrim, CUdevice)(0), 0);
    CHECK(before - free_bytes(), 1);
    CHECK(cuMemFree(outside), 0);
    CHECK(cuMemFree(p), 1);
    CHECK(CU(cuGraphExecDestroy, uintptr_t)(exec), 0);
    CHECK(CU(cuGraphExecDestroy, uintptr_t)(exec), 1);
    CHECK(cuStreamDestroy(s), 0);
}

static void launch_without_room(void) {
    CUstream s = stream();
    CUdeviceptr p, q;
    uintptr_t graph, exec;
    size_t before = free_bytes();
    CHECK(cuBegin(s, GLOBAL), 0);
    CHECK(cuMemAllocAsync(&p, MIB, s), 0);
    CHECK(cuEnd(s, &graph), 0);
    CHECK(cuInstantiate(&exec, graph, 0), 0);
    CHECK(cuMemAlloc(&q, before - MIB + 1), 0);
    CHECK(cuLaunch(exec, s), 2);
    CHECK(free_bytes(), MIB - 1);
    CHECK(cuMemFree(q), 0);
    CHECK(cuLaunch(exec, s), 0);
    CHECK(CU(cuGraphExecDestroy, uintptr_t)(exec), 0);
    CHECK(CU(cuGraphDestroy, uintptr_t)(graph), 0);
    CHECK(before - free_bytes(), MIB); // a block outlives its graph
    CHECK(cuMemFree(p), 0);
    CHECK(CU(cuDeviceGraphMemTrim, CUdevice)(0), 0);
    CHECK(free_bytes(), before);
    CHECK(cuStreamDestroy(s), 0);
}

static uint64_t graph_memory(int attribute) {
    uint64_t v;
    CHECK(CU(cuDeviceGetGraphMemAttribute, CUdevice, int, void *)(0, attribute, &v), 0);
    return v;
}

// What a graph leaves behind is in the way of its next launch until it is freed, as the program
// says it, not as it is done.
static void left_behind(void) {
    enum { USED = 0, RESERVED = 2 };
    CUstream s = stream();
    CUdeviceptr p;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = 1, .location = {1, 0}},
                                         .bytesize = MIB};
    CUDA_MEM_ALLOC_NODE_PARAMS told;
    uintptr_t graph, exec, other, freeing, node;
    int type = -1;
    struct gate g;
    CHECK(CU(cuGraphCreate, uintptr_t *, unsigned)(&graph, 0), 0);
    CHECK(CU(cuGraphAddMemAllocNode, uintptr_t *, uintptr_t, const uintptr_t *, size_t,
             CUDA_MEM_ALLOC_NODE_PARAMS *)(&node, graph, NULL, 0, &params),
          0);
    p = params.dptr;
    CHECK(CU(cuGraphNodeGetType, uintptr_t, int *)(node, &type), 0);
    CHECK(type, 10);
    CHECK(CU(cuGraphMemAllocNodeGetParams, uintptr_t, CUDA_MEM_ALLOC_NODE_PARAMS *)(node, &told),
          0);
    CHECK(told.dptr == p && told.bytesize == MIB && told.poolProps.location.type == 1, 1);
    CHECK(cuInstantiate(&exec, graph, 0), 0);
    CHECK(cuInstantiate(&other, graph, 0), 801); // one at a time: its memory has one address
    CHECK(CU(cuGraphUpload, uintptr_t, CUstream)(exec, s), 0);
    CHECK(graph_memory(USED), 0);
    CHECK(graph_memory(RESERVED), MIB);
    CHECK(cuLaunch(exec, s), 0);
    CHECK(graph_memory(USED), MIB);
    CHECK(graph_memory(RESERVED), MIB);
    CHECK(cuLaunch(exec, s), 1);
    gate_put(&g, s);
    CHECK(cuMemFreeAsync(p, s), 0);
    CHECK(cuMemFreeAsync(p, s), 1);
    CHECK(cuLaunch(exec, s), 0);
    gate_open(&g);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(graph_memory(USED), MIB);
    // Another graph may free it.
    CHECK(CU(cuGraphCreate, uintptr_t *, unsigned)(&freeing, 0), 0);
    CHECK(CU(cuGraphAddMemFreeNode, uintptr_t *, uintptr_t, const uintptr_t *, size_t,
             CUdeviceptr)(&node, freeing, NULL, 0, p),
          0);
    CHECK(cuInstantiate(&other, freeing, 0), 0);
    CHECK(cuLaunch(other, s), 0);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(graph_memory(USED), 0);
    CHECK(graph_memory(RESERVED), MIB);
    CHECK(CU(cuGraphExecDestroy, uintptr_t)(exec), 0);
    CHECK(cuInstantiate(&exec, graph, 1), 0);
    CHECK(cuLaunch(exec, s), 0);
    CHECK(cuLaunch(exec, s), 0); // frees it itself, as it was told to
    CHECK(graph_memory(RESERVED), MIB);
    CHECK(cuMemFree(p), 0);
    CHECK(CU(cuGraphExecDestroy, uintptr_t)(exec), 0);
    CHECK(CU(cuGraphExecDestroy, uintptr_t)(other), 0);
    CHECK(CU(cuGraphDestroy, uintptr_t)(graph), 0);
    CHECK(CU(cuGraphDestroy, uintptr_t)(freeing), 0);
    CHECK(CU(cuDeviceGraphMemTrim, CUdevice)(0), 0);
    CHECK(graph_memory(RESERVED), 0);
    CHECK(cuStreamDestroy(s), 0);
}

static void forbidden(void) {
    CUstream s = stream();
    CUevent e;
    CUdeviceptr p;
    uintptr_t graph = 1;
    int mode = RELAXED;
    CHECK(cuEventCreate(&e, 0), 0);
    CHECK(cuBegin(0, GLOBAL), 900);
    CHECK(cuEnd(s, &graph), 1);

    CHECK(cuBegin(s, GLOBAL), 0);
    CHECK(cuStreamSynchronize(s), 900);
    CHECK(status(s), INVALIDATED);
    CHECK(cuMemset8(0, 0, 1, s), 1);
    CHECK(cuEventRecord(e, s), 901);
    CHECK(cuEnd(s, &graph), 901);
    CHECK(graph, 0);

    CHECK(cuBegin(s, THREAD_LOCAL), 0);
    CHECK(cuMemAlloc(&p, 1), 900);
    CHECK(cuEnd(s, &graph), 901);

    CHECK(cuBegin(s, GLOBAL), 0);
    CHECK(CU(cuThreadExchangeStreamCaptureMode, int *)(&mode), 0);
    CHECK(cuMemAlloc(&p, 1), 0);
    CHECK(cuMemFree(p), 0);
    CHECK(CU(cuThreadExchangeStreamCaptureMode, int *)(&mode), 0);
    CHECK(mode, RELAXED);
    int v;
    CHECK(CU(cuStreamIsCapturing, CUstream, int *)(0, &v), 906);
    CHECK(status(s), ACTIVE);
    CHECK(cuEventRecord(e, 0), 906);
    CHECK(status(s), INVALIDATED);
    CHECK(cuStreamDestroy(s), 0);
    CHECK(cuMemAlloc(&p, 1), 0); // its capture is gone
    CHECK(cuMemFree(p), 0);
    CHECK(CU(cuEventDestroy_v2, CUevent)(e), 0);
}

static void forked(void) {
    CUstream a = stream(), b = stream();
    CUevent fork, join;
    uintptr_t graph;
    CHECK(cuEventCreate(&fork, 0), 0);
    CHECK(cuEventCreate(&join, 0), 0);
    for (int joined = 0; joined < 2; joined++) {
        CHECK(cuBegin(a, THREAD_LOCAL), 0);
        CHECK(cuEventRecord(fork, a), 0);
        CHECK(cuEventQuery(fork), 907);
        CHECK(cuStreamWaitEvent(b, fork, 0), 0);
        CHECK(status(b), ACTIVE);
        CHECK(cuEnd(b, &graph), 903);
        CHECK(cuEventRecord(join, b), 0);
        if (joined)
            CHECK(cuStreamWaitEvent(a, join, 0), 0);
        CHECK(cuEnd(a, &graph), joined ? 0 : 904);
        CHECK(status(b), NONE);
    }
    CHECK(CU(cuGraphDestroy, uintptr_t)(graph), 0);
    CHECK(cuEventQuery(fork), 0);
    CHECK(cuStreamDestroy(a), 0);
    CHECK(cuStreamDestroy(b), 0);
}

int main(void) {
    CUcontext ctx = open_device(0);
    memory_comes_with_the_launch();
    launch_without_room();
    left_behind();
    forbidden();
    forked();
    CHECK(cuCtxDestroy(ctx), 0);
    return 0;
}
