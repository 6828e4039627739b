// SPDX-License-Identifier: Apache-2.0
// session_stress PEER [THREADS [STEPS [SEED [wait]]]]: stress test of admission. More threads than
// connections admit and release through the whole core, against a peer that dies and starts again.
// At the end the peer must count no bytes as used. With "wait", each thread holds one block at a
// time, requests that do not fit wait, and no request may be refused.
#include <pthread.h>

#include "core/admit.h"
#include "daemon.h"

static long steps = 300;
static uint64_t seed0 = 1;
static char socket_path[64];
static const char *peer_path;
static bool waits;
static size_t places = 16;   // most blocks that a thread holds
static uint64_t most = 9000; // largest block in bytes

static struct test_daemon start_peer(void) {
    const char *const options[] = {"limit", "400000", "surplus",         "20000", "quiet",
                                   "1",     "wait",   waits ? "1" : "0", NULL};
    return test_daemon_start(peer_path, socket_path, options);
}

struct block {
    uint64_t bytes;
};

static _Atomic long refused;
static _Atomic bool last_peer; // true: the peer will not die again

static void *client(void *arg) {
    uint64_t id = (uint64_t)(uintptr_t)arg;
    uint64_t seed = seed0 * 104729 + id;
    struct block held[16] = {{0}};
    struct ga_root *root = ga_root_get();
    CHECK(root);
    for (long i = 0; i < steps || !atomic_load(&last_peer); i++) {
        struct block *b = &held[test_random(&seed) % places];
        if (b->bytes) {
            struct ga_entry e;
            CHECK(ga_remove(root, (uint64_t)(uintptr_t)b * 512, &e));
            ga_release(root, 0, e.bytes, e.tag);
            b->bytes = 0;
            continue;
        }
        uint64_t bytes = 1 + test_random(&seed) % most;
        struct ga_entry e = {.key = (uint64_t)(uintptr_t)b * 512, .bytes = bytes};
        if (ga_admit(root, 0, bytes, GA_MEMORY_PLAIN, &e.tag)) {
            CHECK(ga_insert(root, &e));
            b->bytes = bytes;
        } else {
            atomic_fetch_add(&refused, 1);
        }
    }
    for (size_t n = 0; n < 16; n++) {
        struct ga_entry e;
        if (!held[n].bytes)
            continue;
        CHECK(ga_remove(root, (uint64_t)(uintptr_t)&held[n] * 512, &e));
        ga_release(root, 0, e.bytes, e.tag);
    }
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = argc > 2 ? (size_t)atol(argv[2]) : 24;
    CHECK(argc > 1 && threads <= 64);
    peer_path = argv[1];
    steps = argc > 3 ? atol(argv[3]) : steps;
    seed0 = argc > 4 ? (uint64_t)atol(argv[4]) : seed0;
    waits = argc > 5 && strcmp(argv[5], "wait") == 0;
    if (waits) {
        places = 1;
        most = 60000;
    }
    snprintf(socket_path, sizeof socket_path, "/tmp/gpuarb-stress-%d.sock", (int)getpid());
    setenv("GPUARB_SOCKET", socket_path, 1);
    setenv("GPUARB_ON_LOSS", "closed", 1);
    struct test_daemon p = start_peer();
    struct ga_root *root = ga_root_get();
    CHECK(root);
    memset(root->devices[0].uuid, 7, sizeof root->devices[0].uuid);
    atomic_store(&root->devices[0].known, 1);
    CHECK(ga_session_attach(root, 0) == GA_WAY_ASK);
    pthread_t thread[64];
    for (size_t i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, client, (void *)(uintptr_t)(i + 1));
    for (int restarts = 0; restarts < 3; restarts++) {
        usleep(30000);
        test_daemon_stop(&p);
        usleep(10000);
        p = start_peer();
    }
    atomic_store(&last_peer, true);
    for (size_t i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    // Request almost the whole limit. If no credit covers it, the request reaches the last peer and
    // resumes the session there. The peer counts as used what it granted less what is in the credit
    // word.
    uint16_t tag;
    if (ga_admit(root, 0, 399999, GA_MEMORY_PLAIN, &tag))
        ga_release(root, 0, 399999, tag);
    struct test_state end = test_daemon_show(&p);
    fprintf(stderr, "refused %ld, granted %llu, used %llu\n", (long)refused, end.granted, end.used);
    test_daemon_stop(&p);
    unlink(socket_path);
    CHECK(end.granted <= 400000 && end.used == 0 && (!waits || refused == 0));
    return 0;
}
