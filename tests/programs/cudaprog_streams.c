// SPDX-License-Identifier: Apache-2.0
// cudaprog's commands for streams, and captures in them:
//
//   stream NAME [PRIORITY]       cuStreamCreate, or …WithPriority
//   streamdestroy NAME           (by name, also after it was destroyed);
//                                streamdestroyv1: cuStreamDestroy
//   streammany NAME COUNT        COUNT streams; stops at the first failure
//   streamunknown HANDLE         cuStreamDestroy_v2 of a number
//   sync STREAM; query STREAM    "query s err 600" while it is busy
//   syncptsz STREAM; syncevent STREAM; syncall   the entry point …_ptsz, an event, and
//                                cuCtxSynchronize; syncof CONTEXT: cuCtxSynchronize_v2
//   gate STREAM                  blocks the stream until "open" (opens all gates)
//   delay STREAM MS              blocks the stream for a time
//   capture STREAM [MODE]        cuStreamBeginCapture_v2
//   endcapture STREAM [GRAPH]
//   captureto STREAM GRAPH       cuStreamBeginCaptureToGraph;   capturetoptsz
//   capturing STREAM             "capturing s ok 1", or 2 if the capture is invalid
#include "cudaprog.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void do_stream(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    CUstream s = NULL;
    CUresult r = c->words > 2
                     ? CU(cuStreamCreateWithPriority)(&s, 1, (int)strtol(word(c, 2), NULL, 10))
                     : CU(cuStreamCreate)(&s, 1);
    if (r == 0)
        n->value = (uintptr_t)s;
    else if (s)
        r = 9999; // the call was refused, and has changed the handle
    answer(c, r, "");
}

static void do_streammany(const struct command *c) {
    struct name *n = lookup(c, 1, true);
    uint64_t most = number(c, 2);
    char more[64];
    CUresult r = 0;
    n->many = calloc(most ? most : 1, sizeof *n->many);
    n->count = 0;
    while (n->count < most) {
        CUstream s = NULL;
        r = CU(cuStreamCreate)(&s, 1);
        if (r != 0)
            break;
        n->many[n->count++] = (uintptr_t)s;
    }
    if (r == 0)
        snprintf(more, sizeof more, "%zu", n->count);
    else
        snprintf(more, sizeof more, "%zu err %d", n->count, r);
    answer(c, 0, more);
}

static void do_streamdestroy(const struct command *c) {
    bool first = strcmp(c->word[0], "streamdestroyv1") == 0;
    answer(c, first ? CU(cuStreamDestroy)(stream(c, 1)) : CU(cuStreamDestroy_v2)(stream(c, 1)), "");
}

static void do_streamunknown(const struct command *c) {
    answer(c, CU(cuStreamDestroy_v2)((CUstream)(uintptr_t)number(c, 1)), "");
}

static void do_sync(const struct command *c) {
    answer(c, CU(cuStreamSynchronize)(stream(c, 1)), "");
}

static void do_query(const struct command *c) {
    answer(c, CU(cuStreamQuery)(stream(c, 1)), "");
}

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opened = PTHREAD_COND_INITIALIZER;
static unsigned gate_generation;

static void gate_wait(void *arg) {
    pthread_mutex_lock(&gate_lock);
    while (gate_generation == (unsigned)(uintptr_t)arg)
        pthread_cond_wait(&gate_opened, &gate_lock);
    pthread_mutex_unlock(&gate_lock);
}

static void do_gate(const struct command *c) {
    void *now = (void *)(uintptr_t)gate_generation;
    answer(c, CU(cuLaunchHostFunc)(stream(c, 1), gate_wait, now), "");
}

static void do_open(const struct command *c) {
    pthread_mutex_lock(&gate_lock);
    gate_generation++;
    pthread_cond_broadcast(&gate_opened);
    pthread_mutex_unlock(&gate_lock);
    answer(c, 0, "");
}

static void delay_run(void *arg) {
    usleep((useconds_t)(uintptr_t)arg * 1000);
}

static void do_delay(const struct command *c) {
    void *ms = (void *)(uintptr_t)number(c, 2);
    answer(c, CU(cuLaunchHostFunc)(stream(c, 1), delay_run, ms), "");
}

static void do_syncptsz(const struct command *c) {
    answer(c, CU(cuStreamSynchronize_ptsz)(stream(c, 1)), "");
}

static void do_syncevent(const struct command *c) {
    CUevent event;
    CUresult r = CU(cuEventCreate)(&event, 0);
    if (r == 0)
        r = CU(cuEventRecord)(event, stream(c, 1));
    if (r == 0)
        r = CU(cuEventSynchronize)(event);
    answer(c, r ? r : CU(cuEventDestroy_v2)(event), "");
}

static void do_syncall(const struct command *c) {
    answer(c, CU(cuCtxSynchronize)(), "");
}

static void do_syncof(const struct command *c) {
    answer(c, CU(cuCtxSynchronize_v2)((CUcontext)(uintptr_t)lookup(c, 1, false)->value), "");
}

static void do_capture(const struct command *c) {
    answer(c, CU(cuStreamBeginCapture_v2)(stream(c, 1), (int)number_or(c, 2, 0)), "");
}

static void do_endcapture(const struct command *c) {
    CUgraph graph = NULL;
    CUresult r = CU(cuStreamEndCapture)(stream(c, 1), &graph);
    if (r == 0 && c->words > 2)
        lookup(c, 2, true)->value = (uintptr_t)graph;
    answer(c, r, "");
}

static void do_captureto(const struct command *c) {
    CUgraph into = (CUgraph)(uintptr_t)lookup(c, 2, false)->value;
    bool ptsz = strcmp(c->word[0], "capturetoptsz") == 0;
    CUresult r = ptsz ? CU(cuStreamBeginCaptureToGraph_ptsz)(stream(c, 1), into, NULL, NULL, 0, 0)
                      : CU(cuStreamBeginCaptureToGraph)(stream(c, 1), into, NULL, NULL, 0, 0);
    answer(c, r, "");
}

static void do_capturing(const struct command *c) {
    int status = 0;
    char more[16];
    CUresult r = CU(cuStreamIsCapturing)(stream(c, 1), &status);
    snprintf(more, sizeof more, "%d", status);
    answer(c, r, more);
}

const struct verb streams_verbs[] = {
    {"stream", do_stream},
    {"streammany", do_streammany},
    {"streamdestroy", do_streamdestroy},
    {"streamdestroyv1", do_streamdestroy},
    {"streamunknown", do_streamunknown},
    {"sync", do_sync},
    {"query", do_query},
    {"gate", do_gate},
    {"open", do_open},
    {"delay", do_delay},
    {"syncptsz", do_syncptsz},
    {"syncevent", do_syncevent},
    {"syncall", do_syncall},
    {"syncof", do_syncof},
    {"capture", do_capture},
    {"endcapture", do_endcapture},
    {"captureto", do_captureto},
    {"capturetoptsz", do_captureto},
    {"capturing", do_capturing},
    {NULL, NULL},
};
