// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for graphs with memory:
//
//   graph NAME; graphdestroy NAME
//   graphalloc NAME GRAPH SIZE [DEVICE]  cuGraphAddMemAllocNode: NAME is the address;
//                                graphnode: cuGraphAddNode with the same; graphnodev2
//   graphchild NODE GRAPH CHILD  cuGraphAddChildGraphNode
//   graphmove NODE GRAPH CHILD   cuGraphAddNode of a child that is moved; graphmovev2
//   graphif BODY GRAPH VALUE     a conditional node that goes by its default value
//   graphclone NEW GRAPH         cuGraphClone
//   graphupdate EXEC GRAPH       cuGraphExecUpdate_v2;   graphupdatev1: …Update
//   graphfree NAME GRAPH         cuGraphAddMemFreeNode
//   instantiate NAME GRAPH [FLAGS]   cuGraphInstantiateWithFlags; instantiatev2: …_v2;
//                                instantiatev1: cuGraphInstantiate;
//   instantiatewith NAME GRAPH FLAGS STREAM   …WithParams;   withptsz: its _ptsz entry point
//   execdestroy NAME
//   upload NAME STREAM; launch NAME STREAM;   uploadptsz, launchptsz
//   launchfree NAME STREAM BLOCK MS   launch, while another thread frees a block after a time
//   graphtrim DEVICE             cuDeviceGraphMemTrim
//   graphholds DEVICE            what graphs hold there: "graphholds ok 4096"
#include "cudaprog.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static CUgraph graph(const struct command *c, int i) {
    return (CUgraph)(uintptr_t)lookup(c, i, false)->value;
}

static void do_graph(const struct command *c) {
    CUgraph made = NULL;
    CUresult r = CU(cuGraphCreate)(&made, 0);
    if (r == 0)
        lookup(c, 1, true)->value = (uintptr_t)made;
    answer(c, r, "");
}

static void do_graphdestroy(const struct command *c) {
    answer(c, CU(cuGraphDestroy)(graph(c, 1)), "");
}

struct alloc_node {
    struct pool_properties pool;
    const void *access;
    size_t accesses, bytes;
    CUdeviceptr address;
};

// CUgraphNodeParams
struct any_node {
    int type, reserved[3];
    union {
        struct alloc_node alloc;
        struct {
            CUgraph graph;
            int ownership;
        } child;
        struct {
            uint64_t handle;
            int type;
            unsigned int size;
            CUgraph *bodies;
            CUcontext context;
        } condition;
        uint64_t room[30];
    };
};

static CUresult add_node(const struct command *c, CUnode *node, struct any_node *any) {
    return ends_with(c->word[0], "v2")
               ? CU(cuGraphAddNode_v2)(node, graph(c, 2), NULL, NULL, 0, any)
               : CU(cuGraphAddNode)(node, graph(c, 2), NULL, 0, any);
}

static void do_graphalloc(const struct command *c) {
    enum { NODE_ALLOC = 10 };
    struct any_node any = {.type = NODE_ALLOC};
    any.alloc.pool = properties_on((CUdevice)number_or(c, 4, (uint64_t)device));
    any.alloc.bytes = number(c, 3);
    CUnode node;
    CUresult r = strcmp(c->word[0], "graphalloc") != 0
                     ? add_node(c, &node, &any)
                     : CU(cuGraphAddMemAllocNode)(&node, graph(c, 2), NULL, 0, &any.alloc);
    if (r == 0)
        lookup(c, 1, true)->value = any.alloc.address;
    answer(c, r, "");
}

static void do_graphchild(const struct command *c) {
    enum { NODE_CHILD = 4, MOVE = 1 };
    struct any_node any = {.type = NODE_CHILD, .child = {graph(c, 3), MOVE}};
    CUnode node = NULL;
    CUresult r = strcmp(c->word[0], "graphchild") != 0
                     ? add_node(c, &node, &any)
                     : CU(cuGraphAddChildGraphNode)(&node, graph(c, 2), NULL, 0, graph(c, 3));
    if (r == 0)
        lookup(c, 1, true)->value = (uintptr_t)node;
    answer(c, r, "");
}

static void do_graphif(const struct command *c) {
    enum { NODE_CONDITION = 13, ASSIGN_DEFAULT = 1 };
    struct any_node any = {.type = NODE_CONDITION, .condition = {.size = 1}};
    CUnode node;
    CUcontext context = NULL;
    CUresult r = CU(cuCtxGetCurrent)(&context);
    if (r == 0)
        r = CU(cuGraphConditionalHandleCreate)(&any.condition.handle, graph(c, 2), context,
                                               (unsigned)number(c, 3), ASSIGN_DEFAULT);
    if (r == 0)
        r = CU(cuGraphAddNode)(&node, graph(c, 2), NULL, 0, &any);
    if (r == 0)
        lookup(c, 1, true)->value = (uintptr_t)any.condition.bodies[0];
    answer(c, r, "");
}

static void do_graphclone(const struct command *c) {
    CUgraph made = NULL;
    CUresult r = CU(cuGraphClone)(&made, graph(c, 2));
    if (r == 0)
        lookup(c, 1, true)->value = (uintptr_t)made;
    answer(c, r, "");
}

static void do_graphupdate(const struct command *c) {
    struct {
        int result;
        CUnode node, from;
    } info;
    CUresult r = strcmp(c->word[0], "graphupdatev1") == 0
                     ? CU(cuGraphExecUpdate)(graph(c, 1), graph(c, 2), &info.node, &info.result)
                     : CU(cuGraphExecUpdate_v2)(graph(c, 1), graph(c, 2), &info);
    answer(c, r, "");
}

static void do_graphfree(const struct command *c) {
    CUnode node;
    CUdeviceptr p = lookup(c, 1, false)->value;
    answer(c, CU(cuGraphAddMemFreeNode)(&node, graph(c, 2), NULL, 0, p), "");
}

static void do_instantiate(const struct command *c) {
    const char *what = c->word[0];
    struct {
        uint64_t flags;
        CUstream upload;
        CUnode error;
        int result;
    } with = {.flags = number_or(c, 3, 0), .upload = c->words > 4 ? stream(c, 4) : NULL};
    CUexec made = NULL;
    CUnode bad = NULL;
    CUresult r;
    if (strcmp(what, "instantiatev1") == 0)
        r = CU(cuGraphInstantiate)(&made, graph(c, 2), &bad, NULL, 0);
    else if (strcmp(what, "instantiatev2") == 0)
        r = CU(cuGraphInstantiate_v2)(&made, graph(c, 2), &bad, NULL, 0);
    else if (strcmp(what, "instantiatewith") == 0)
        r = CU(cuGraphInstantiateWithParams)(&made, graph(c, 2), &with);
    else if (strcmp(what, "withptsz") == 0)
        r = CU(cuGraphInstantiateWithParams_ptsz)(&made, graph(c, 2), &with);
    else
        r = CU(cuGraphInstantiateWithFlags)(&made, graph(c, 2), with.flags);
    if (r == 0)
        lookup(c, 1, true)->value = (uintptr_t)made;
    answer(c, r, "");
}

static void do_exec_graph(const struct command *c) {
    const char *what = c->word[0];
    CUexec exec = graph(c, 1);
    CUresult r;
    if (strcmp(what, "execdestroy") == 0)
        r = CU(cuGraphExecDestroy)(exec);
    else if (strcmp(what, "upload") == 0)
        r = CU(cuGraphUpload)(exec, stream(c, 2));
    else if (strcmp(what, "uploadptsz") == 0)
        r = CU(cuGraphUpload_ptsz)(exec, stream(c, 2));
    else if (strcmp(what, "launchptsz") == 0)
        r = CU(cuGraphLaunch_ptsz)(exec, stream(c, 2));
    else
        r = CU(cuGraphLaunch)(exec, stream(c, 2));
    answer(c, r, "");
}

static void do_graphtrim(const struct command *c) {
    answer(c, CU(cuDeviceGraphMemTrim)((CUdevice)number(c, 1)), "");
}

static void do_graphholds(const struct command *c) {
    enum { RESERVED_CURRENT = 2 };
    uint64_t value = 0;
    char more[32];
    CUresult r = CU(cuDeviceGetGraphMemAttribute)((CUdevice)number(c, 1), RESERVED_CURRENT, &value);
    snprintf(more, sizeof more, "%" PRIu64, value);
    answer(c, r, more);
}

struct freeing {
    pthread_t thread;
    CUdeviceptr block;
    uint64_t ms;
    CUresult failed;
};

static void *free_run(void *arg) {
    struct freeing *f = arg;
    usleep((useconds_t)f->ms * 1000);
    f->failed = CU(cuMemFree_v2)(f->block);
    return NULL;
}

static void do_launchfree(const struct command *c) {
    struct freeing f = {.block = lookup(c, 3, false)->value, .ms = number(c, 4)};
    if (pthread_create(&f.thread, NULL, free_run, &f) != 0)
        abort();
    CUresult r = CU(cuGraphLaunch)(graph(c, 1), stream(c, 2));
    pthread_join(f.thread, NULL);
    answer(c, r ? r : f.failed, "");
}

const struct verb graphs_verbs[] = {
    {"graph", do_graph},
    {"graphdestroy", do_graphdestroy},
    {"graphalloc", do_graphalloc},
    {"graphnode", do_graphalloc},
    {"graphnodev2", do_graphalloc},
    {"graphchild", do_graphchild},
    {"graphmove", do_graphchild},
    {"graphmovev2", do_graphchild},
    {"graphif", do_graphif},
    {"graphclone", do_graphclone},
    {"graphupdate", do_graphupdate},
    {"graphupdatev1", do_graphupdate},
    {"graphfree", do_graphfree},
    {"instantiate", do_instantiate},
    {"instantiatev1", do_instantiate},
    {"instantiatev2", do_instantiate},
    {"instantiatewith", do_instantiate},
    {"withptsz", do_instantiate},
    {"execdestroy", do_exec_graph},
    {"upload", do_exec_graph},
    {"uploadptsz", do_exec_graph},
    {"launch", do_exec_graph},
    {"launchptsz", do_exec_graph},
    {"launchfree", do_launchfree},
    {"graphtrim", do_graphtrim},
    {"graphholds", do_graphholds},
    {NULL, NULL},
};
