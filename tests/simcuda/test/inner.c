// SPDX-License-Identifier: Apache-2.0
//
// Graphs in graphs, graphs that are edited or updated, and captures into a graph that is there.

#include "testlib.h"

#define MIB (1ull << 20)

enum { CLONE, MOVE };
enum { REFUSED = 801, UPDATE_FAILED = 910 };

typedef uintptr_t handle;

struct parameters {
    int type, reserved[3];
    union {
        struct {
            handle graph;
            int ownership;
        } child;
        struct {
            uint64_t handle;
            int type;
            unsigned size;
            handle *bodies;
            CUcontext context;
        } condition;
        uint64_t room[30];
    };
};

#define cuGraphCreate CU(cuGraphCreate, handle *, unsigned)
#define cuGraphDestroy CU(cuGraphDestroy, handle)
#define cuGraphAddEmpty CU(cuGraphAddEmptyNode, handle *, handle, const handle *, size_t)
#define cuGraphAddAlloc                                                                            \
    CU(cuGraphAddMemAllocNode, handle *, handle, const handle *, size_t,                           \
       CUDA_MEM_ALLOC_NODE_PARAMS *)
#define cuGraphAddFree                                                                             \
    CU(cuGraphAddMemFreeNode, handle *, handle, const handle *, size_t, CUdeviceptr)
#define cuGraphAddNode                                                                             \
    CU(cuGraphAddNode_v2, handle *, handle, const handle *, const void *, size_t,                  \
       struct parameters *)
#define cuGraphAddChild                                                                            \
    CU(cuGraphAddChildGraphNode, handle *, handle, const handle *, size_t, handle)
#define cuInstantiate CU(cuGraphInstantiateWithFlags, handle *, handle, unsigned long long)
#define cuExecDestroy CU(cuGraphExecDestroy, handle)
#define cuLaunch CU(cuGraphLaunch, handle, CUstream)
#define cuClone CU(cuGraphClone, handle *, handle)
#define cuUpdate CU(cuGraphExecUpdate, handle, handle, handle *, int *)
#define cuTrim CU(cuDeviceGraphMemTrim, CUdevice)

static int ran;

static void count(void *arg) {
    (void)arg;
    ran++;
}

static handle graph(void) {
    handle g;
    CHECK(cuGraphCreate(&g, 0), 0);
    return g;
}

static CUdeviceptr add_alloc(handle g, size_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = 1, .location = {1, 0}},
                                         .bytesize = bytes};
    handle node;
    CHECK(cuGraphAddAlloc(&node, g, NULL, 0, &params), 0);
    return params.dptr;
}

static CUresult add_child(handle g, handle child, int ownership, handle *node) {
    struct parameters params = {.type = 4, .child = {child, ownership}};
    return cuGraphAddNode(node, g, NULL, NULL, 0, &params);
}

// A graph that counts its runs.
static handle counting(CUstream s) {
    handle g;
    CHECK(CU(cuStreamBeginCapture_v2, CUstream, int)(s, 0), 0);
    CHECK(cuLaunchHostFunc(s, count, NULL), 0);
    CHECK(CU(cuStreamEndCapture, CUstream, handle *)(s, &g), 0);
    return g;
}

static int run(handle g, CUstream s) {
    handle x;
    ran = 0;
    CHECK(cuInstantiate(&x, g, 0), 0);
    CHECK(cuLaunch(x, s), 0);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(cuExecDestroy(x), 0);
    return ran;
}

static void copies(CUstream s) {
    handle child = counting(s), outer = graph(), node, inside, clone, x;
    int type;
    CHECK(cuGraphAddChild(&node, outer, NULL, 0, child), 0);
    CHECK(CU(cuGraphNodeGetType, handle, int *)(node, &type), 0);
    CHECK(type, 4);
    CHECK(CU(cuGraphChildGraphNodeGetGraph, handle, handle *)(node, &inside), 0);
    CHECK(inside != child, 1);
    CHECK(cuGraphDestroy(inside), 1); // the node's
    CHECK(cuInstantiate(&x, inside, 0), 1);
    CHECK(cuGraphAddChild(&node, child, NULL, 0, child), 1);
    CHECK(add_child(outer, child, CLONE, &node), 0);
    CHECK(cuGraphDestroy(child), 0); // both are copies
    CHECK(cuClone(&clone, outer), 0);
    CHECK(CU(cuGraphDestroyNode, handle)(node), 0);
    CHECK(CU(cuGraphDestroyNode, handle)(node), 1);
    CHECK(run(outer, s), 1);
    CHECK(run(clone, s), 2);
    // A launch that is captured is a child.
    CHECK(cuInstantiate(&x, clone, 0), 0);
    CHECK(CU(cuStreamBeginCapture_v2, CUstream, int)(s, 0), 0);
    CHECK(cuLaunch(x, s), 0);
    CHECK(cuLaunch(x, s), 0);
    CHECK(CU(cuStreamEndCapture, CUstream, handle *)(s, &child), 0);
    CHECK(run(child, s), 4);
    CHECK(cuGraphDestroy(child), 0);
    CHECK(cuExecDestroy(x), 0);
    CHECK(cuGraphDestroy(clone), 0);
    CHECK(cuGraphDestroy(outer), 0);
    CHECK(cuGraphDestroy(outer), 1);
}

// A graph with memory can be moved into another one, and nothing else.
static void moved(CUstream s) {
    handle child = graph(), outer = graph(), other = graph(), node, x;
    struct parameters params = {.type = 4, .child = {child, MOVE}};
    size_t before = free_bytes();
    CUdeviceptr p = add_alloc(child, MIB);
    CHECK(cuGraphAddFree(&node, child, NULL, 0, p), 0);
    CHECK(cuGraphAddFree(&node, child, NULL, 0, p), 1); // once
    CHECK(cuGraphAddFree(&node, other, NULL, 0, p), 1); // and by nobody else
    CHECK(cuGraphAddChild(&node, outer, NULL, 0, child), REFUSED);
    CHECK(cuClone(&x, child), REFUSED);
    CHECK(cuGraphAddNode(&node, outer, NULL, NULL, 0, &params), 0);
    CHECK(cuInstantiate(&x, child, 0), 1);
    CHECK(cuGraphDestroy(child), 1);
    CHECK(add_child(other, child, MOVE, &node), REFUSED);
    CHECK(CU(cuGraphDestroyNode, handle)(node), REFUSED);
    CUDA_MEM_ALLOC_NODE_PARAMS more = {.poolProps = {.allocType = 1, .location = {1, 0}},
                                       .bytesize = MIB};
    CHECK(cuGraphAddAlloc(&node, child, NULL, 0, &more), 1);
    CHECK(cuClone(&x, outer), REFUSED);
    CHECK(cuInstantiate(&x, outer, 0), 0);
    CHECK(cuInstantiate(&node, outer, 0), REFUSED);
    CHECK(before - free_bytes(), 0);
    CHECK(cuLaunch(x, s), 0);
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(before - free_bytes(), MIB);
    CHECK(CU(cuStreamBeginCapture_v2, CUstream, int)(s, 0), 0);
    CHECK(cuLaunch(x, s), 900); // and breaks the capture
    CHECK(CU(cuStreamEndCapture, CUstream, handle *)(s, &node), 901);
    CHECK(cuGraphDestroy(outer), 0);
    CHECK(cuGraphDestroy(child), 1);
    CHECK(cuLaunch(x, s), 0); // it keeps what it launches
    CHECK(cuStreamSynchronize(s), 0);
    CHECK(cuExecDestroy(x), 0);
    CHECK(cuTrim(0), 0);
    CHECK(before - free_bytes(), 0);
    CHECK(cuGraphDestroy(other), 0);
}

static void edited(void) {
    handle g = graph(), other = graph(), a, b, foreign;
    CHECK(cuGraphAddEmpty(&a, g, NULL, 0), 0);
    CHECK(cuGraphAddEmpty(&b, g, &a, 1), 0);
    CHECK(cuGraphAddEmpty(&foreign, other, &a, 1), 1); // another graph's node
    CHECK(CU(cuGraphDestroyNode, handle)(b), 0);
    add_alloc(g, MIB);
    CHECK(CU(cuGraphDestroyNode, handle)(a), REFUSED);
    CHECK(cuGraphDestroy(g), 0);
    CHECK(cuGraphDestroy(other), 0);
}

// The next launch is of the other graph's memory; what the last one left behind stays.
static void updated(CUstream s) {
    enum { KINDS = 3, TOPOLOGY = 2, NOT_SUPPORTED = 6 };
    handle small = graph(), large = graph(), longer = graph(), other = graph(), node, x, y;
    size_t before = free_bytes();
    int result;
    CUdeviceptr a = add_alloc(small, MIB), b = add_alloc(large, 3 * MIB);
    CHECK(cuGraphAddEmpty(&node, other, NULL, 0), 0);
    add_alloc(longer, MIB);
    add_alloc(longer, MIB);
    CHECK(cuInstantiate(&x, small, 0), 0);
    CHECK(cuLaunch(x, s), 0);
    CHECK(before - free_bytes(), MIB);
    CHECK(cuUpdate(x, other, &node, &result), UPDATE_FAILED);
    CHECK(result, KINDS);
    CHECK(cuUpdate(x, longer, &node, &result), UPDATE_FAILED);
    CHECK(result, TOPOLOGY);
    CHECK(cuInstantiate(&y, large, 0), 0);
    CHECK(cuUpdate(x, large, &node, &result), UPDATE_FAILED); // it is another's
    CHECK(result, NOT_SUPPORTED);
    CHECK(cuExecDestroy(y), 0);
    CHECK(cuUpdate(x, large, &node, &result), 0);
    CHECK(cuInstantiate(&y, large, 0), REFUSED);
    CHECK(cuInstantiate(&y, small, 0), 0);
    CHECK(cuExecDestroy(y), 0);
    CHECK(before - free_bytes(), MIB);
    CHECK(cuLaunch(x, s), 0);
    CHECK(before - free_bytes(), 4 * MIB);
    CHECK(cuMemFree(a), 0);
    CHECK(cuMemFree(b), 0);
    CHECK(cuExecDestroy(x), 0);
    CHECK(cuGraphDestroy(small), 0);
    CHECK(cuGraphDestroy(large), 0);
    CHECK(cuGraphDestroy(longer), 0);
    CHECK(cuGraphDestroy(other), 0);
    CHECK(cuTrim(0), 0);
    CHECK(before - free_bytes(), 0);
}

static void conditional(CUstream s) {
    for (unsigned value = 0; value < 2; value++) {
        handle g = graph(), body, node, x;
        uint64_t condition;
        CUcontext context;
        CHECK(CU(cuCtxGetCurrent, CUcontext *)(&context), 0);
#define cuCondition                                                                                \
    CU(cuGraphConditionalHandleCreate, uint64_t *, handle, CUcontext, unsigned, unsigned)
        CHECK(cuCondition(&condition, g, 0, value, 1), 201);
        CHECK(cuCondition(&condition, g, context, value, 1), 0);
        struct parameters params = {.type = 13, .condition = {.handle = condition, .size = 1}};
        CHECK(cuGraphAddNode(&node, g, NULL, NULL, 0, &params), 0);
        body = params.condition.bodies[0];
        CHECK(cuGraphAddNode(&node, g, NULL, NULL, 0, &params), 1); // one node for each handle
        CUDA_MEM_ALLOC_NODE_PARAMS memory = {.poolProps = {.allocType = 1, .location = {1, 0}},
                                             .bytesize = MIB};
        CHECK(cuGraphAddAlloc(&node, body, NULL, 0, &memory), 1);
        CHECK(CU(cuStreamBeginCaptureToGraph, CUstream, handle, const handle *, const void *,
                 size_t, int)(s, body, NULL, NULL, 0, 0),
              0);
        CHECK(cuLaunchHostFunc(s, count, NULL), 0);
        CHECK(cuMemAllocAsync(&(CUdeviceptr){0}, MIB, s), 1);
        CHECK(CU(cuStreamEndCapture, CUstream, handle *)(s, &x), 0);
        CHECK(x == body, 1);
        CHECK(cuGraphDestroy(body), 1);
        CHECK(run(g, s), (int)value);
        CHECK(cuClone(&x, g), REFUSED);
        CHECK(cuGraphDestroy(g), 0);
    }
}

// What is captured comes behind what the graph has.
static void captured(CUstream s) {
    handle g = counting(s), x;
    CUdeviceptr p;
    size_t before = free_bytes();
#define cuBeginTo                                                                                  \
    CU(cuStreamBeginCaptureToGraph, CUstream, handle, const handle *, const void *, size_t, int)
    CHECK(cuBeginTo(s, 0, NULL, NULL, 0, 0), 1);
    for (int i = 0; i < 2; i++) {
        CHECK(cuBeginTo(s, g, NULL, NULL, 0, 0), 0);
        CHECK(cuLaunchHostFunc(s, count, NULL), 0);
        if (i)
            CHECK(cuMemAllocAsync(&p, MIB, s), 0);
        else
            CHECK(cuStreamSynchronize(s), 900); // which spoils the capture, not the graph
        CHECK(CU(cuStreamEndCapture, CUstream, handle *)(s, &x), i ? 0 : 901);
        CHECK(x == g, i);
    }
    CHECK(before - free_bytes(), 0);
    CHECK(run(g, s), 3);
    CHECK(before - free_bytes(), MIB);
    CHECK(cuMemFree(p), 0);
    CHECK(cuTrim(0), 0);
    CHECK(cuGraphDestroy(g), 0);
}

int main(void) {
    CUcontext ctx = open_device(0);
    CUstream s;
    CHECK(cuStreamCreate(&s, 1), 0);
    copies(s);
    moved(s);
    edited();
    updated(s);
    conditional(s);
    captured(s);
    CHECK(cuStreamDestroy(s), 0);
    CHECK(cuCtxDestroy(ctx), 0);
    return 0;
}
