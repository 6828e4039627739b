// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for the location of memory, and for access to it:
//
//   advise NAME ADVICE DEVICE    cuMemAdvise, by its number; −1: the host;
//                                advisev2: cuMemAdvise_v2
//   prefetch NAME DEVICE STREAM  cuMemPrefetchAsync;   prefetchv2: …_v2;
//                                prefetchptsz, prefetchv2ptsz
//   prefetchbatch NAME DEVICE STREAM  cuMemPrefetchBatchAsync;   discard:
//                                cuMemDiscardBatchAsync;   discardprefetch:
//                                cuMemDiscardAndPrefetchBatchAsync; each with …ptsz
//   peer CONTEXT; unpeer CONTEXT cuCtxEnablePeerAccess, cuCtxDisablePeerAccess
//   access NAME OFFSET SIZE DEVICE  cuMemSetAccess, to read and write
//   places TYPE                  create, pool, poolnow, pooldefault, graphalloc and
//                                graphnode say from now on that their DEVICE is a place
//                                of this CUmemLocationType (1: a device)
#include "cudaprog.h"

#include <stdlib.h>
#include <string.h>

static int device_or_host(const struct command *c, int i) {
    return (int)strtol(word(c, i), NULL, 10);
}

int place_type = 1;

static void do_places(const struct command *c) {
    place_type = (int)number(c, 1);
    answer(c, 0, "");
}

struct cu_location place(const struct command *c, int i) {
    enum { DEVICE = 1, HOST };
    int id = device_or_host(c, i);
    return id < 0 ? (struct cu_location){HOST, 0} : (struct cu_location){DEVICE, id};
}

static void do_advise(const struct command *c) {
    struct name *n = lookup(c, 1, false);
    int advice = (int)number(c, 2);
    answer(c,
           strcmp(c->word[0], "advise") == 0
               ? CU(cuMemAdvise)(n->value, n->size, advice, device_or_host(c, 3))
               : CU(cuMemAdvise_v2)(n->value, n->size, advice, place(c, 3)),
           "");
}

static void do_prefetch(const struct command *c) {
    const char *what = c->word[0];
    struct name *n = lookup(c, 1, false);
    CUstream s = stream(c, 3);
    CUresult r;
    if (strcmp(what, "prefetch") == 0)
        r = CU(cuMemPrefetchAsync)(n->value, n->size, device_or_host(c, 2), s);
    else if (strcmp(what, "prefetchptsz") == 0)
        r = CU(cuMemPrefetchAsync_ptsz)(n->value, n->size, device_or_host(c, 2), s);
    else if (strcmp(what, "prefetchv2") == 0)
        r = CU(cuMemPrefetchAsync_v2)(n->value, n->size, place(c, 2), 0, s);
    else
        r = CU(cuMemPrefetchAsync_v2_ptsz)(n->value, n->size, place(c, 2), 0, s);
    answer(c, r, "");
}

static void do_batch(const struct command *c) {
    const char *what = c->word[0];
    struct name *n = lookup(c, 1, false);
    struct cu_location at = place(c, 2);
    CUstream s = stream(c, 3);
    CUdeviceptr p = n->value;
    size_t size = n->size, from = 0;
    CUresult r;
    if (strcmp(what, "prefetchbatch") == 0)
        r = CU(cuMemPrefetchBatchAsync)(&p, &size, 1, &at, &from, 1, 0, s);
    else if (strcmp(what, "prefetchbatchptsz") == 0)
        r = CU(cuMemPrefetchBatchAsync_ptsz)(&p, &size, 1, &at, &from, 1, 0, s);
    else if (strcmp(what, "discardprefetch") == 0)
        r = CU(cuMemDiscardAndPrefetchBatchAsync)(&p, &size, 1, &at, &from, 1, 0, s);
    else if (strcmp(what, "discardprefetchptsz") == 0)
        r = CU(cuMemDiscardAndPrefetchBatchAsync_ptsz)(&p, &size, 1, &at, &from, 1, 0, s);
    else if (strcmp(what, "discard") == 0)
        r = CU(cuMemDiscardBatchAsync)(&p, &size, 1, 0, s);
    else
        r = CU(cuMemDiscardBatchAsync_ptsz)(&p, &size, 1, 0, s);
    answer(c, r, "");
}

static void do_peer(const struct command *c) {
    CUcontext peer = (CUcontext)(uintptr_t)lookup(c, 1, false)->value;
    bool on = strcmp(c->word[0], "peer") == 0;
    answer(c, on ? CU(cuCtxEnablePeerAccess)(peer, 0) : CU(cuCtxDisablePeerAccess)(peer), "");
}

static void do_access(const struct command *c) {
    const struct access to = {place(c, 4), 3};
    CUdeviceptr p = lookup(c, 1, false)->value + number(c, 2);
    answer(c, CU(cuMemSetAccess)(p, number(c, 3), &to, 1), "");
}

const struct verb places_verbs[] = {
    {"advise", do_advise},
    {"advisev2", do_advise},
    {"prefetch", do_prefetch},
    {"prefetchptsz", do_prefetch},
    {"prefetchv2", do_prefetch},
    {"prefetchv2ptsz", do_prefetch},
    {"prefetchbatch", do_batch},
    {"prefetchbatchptsz", do_batch},
    {"discard", do_batch},
    {"discardptsz", do_batch},
    {"discardprefetch", do_batch},
    {"discardprefetchptsz", do_batch},
    {"peer", do_peer},
    {"unpeer", do_peer},
    {"access", do_access},
    {"places", do_places},
    {NULL, NULL},
};
