// SPDX-License-Identifier: Apache-2.0
// stress [THREADS [STEPS [SEED]]]: stress test of one credit word and one table. Threads allocate
// and free, while one thread acts as the daemon: it recalls credit, grants more, closes and opens
// the word. At the end, credit and held bytes must be the granted bytes; at no time may more be in
// use than granted. The stream count is lent and taken back meanwhile. Also built for the thread
// sanitizer.
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "core/streams.h"
#include "core/table.h"

static struct ga_table table;
static struct ga_wire_lease_slot slot;
static _Atomic uint64_t in_use;
static _Atomic uint64_t
    granted; // bytes granted by the daemon's thread; raised before a grant, lowered after a recall
static _Atomic bool stop;
static long steps = 20000;
static uint64_t seed0 = 1;

// Checks that used bytes do not exceed granted bytes. Both change, so a check is valid only if the
// granted bytes were constant around it.
static void check_bounds(void) {
    uint64_t before = atomic_load(&granted), used = atomic_load(&in_use);
    if (atomic_load(&granted) == before)
        CHECK(used <= before);
}

#define STREAMS 3
static _Atomic int64_t told_of; // streams released by a message

static void make_a_stream(void) {
    static _Atomic int64_t there;
    if (!ga_streams_acquire(&slot))
        return;
    CHECK(atomic_fetch_add(&there, 1) < STREAMS);
    atomic_fetch_sub(&there, 1);
    if (!ga_streams_release(&slot, 1))
        atomic_fetch_add(&told_of, 1);
}

// Takes the stream count back from the clients, and delegates it to them again, as the daemon does.
static void move_streams(void) {
    uint64_t word = atomic_exchange(ga_streams_word(&slot), 0);
    uint64_t count = (word & GA_STREAMS_MASK) - (uint64_t)atomic_exchange(&told_of, 0);
    CHECK(count <= STREAMS);
    atomic_store(ga_streams_word(&slot),
                 GA_STREAMS_OPEN | (uint64_t)STREAMS << GA_STREAMS_MAX_SHIFT | count);
}

static void *client(void *arg) {
    uint64_t id = (uint64_t)(uintptr_t)arg;
    uint64_t seed = seed0 * 7919 + id + 1;
    uint64_t held[32] = {0};
    uint64_t guess = 0;
    for (long i = 0; i < steps; i++) {
        size_t n = test_random(&seed) % 32;
        struct ga_entry e, old;
        make_a_stream();
        if (held[n]) {
            CHECK(ga_table_remove(&table, held[n], &e));
            CHECK(e.kind == id % 7);
            held[n] = 0;
            atomic_fetch_sub(&in_use, e.bytes);
            guess = ga_credit_release(&slot, e.bytes) + e.bytes;
            continue;
        }
        uint64_t bytes = 1 + test_random(&seed) % 5000;
        if (!ga_credit_acquire_seen(&slot, bytes, &guess))
            continue;
        atomic_fetch_add(&in_use, bytes);
        check_bounds();
        held[n] = (id << 40) + (uint64_t)(i + 1) * 512;
        e = (struct ga_entry){.key = held[n], .bytes = bytes, .kind = (uint8_t)(id % 7)};
        CHECK(ga_table_put(&table, &e, &old) && old.key == 0);
    }
    for (size_t n = 0; n < 32; n++) {
        struct ga_entry e;
        if (!held[n])
            continue;
        CHECK(ga_table_remove(&table, held[n], &e));
        atomic_fetch_sub(&in_use, e.bytes);
        ga_credit_release(&slot, e.bytes);
    }
    return NULL;
}

// Adds credit to the credit word, or takes all credit out of it, as the daemon does. Also sets the
// flags and begins a new epoch.
static void change(uint64_t add, bool take_all, uint64_t flags) {
    uint64_t seen = atomic_load(ga_credit_word(&slot));
    uint64_t next;
    if (!take_all)
        atomic_fetch_add(&granted, add);
    do {
        uint64_t credit = take_all ? 0 : (seen & GA_CREDIT_MASK) + add;
        next = flags | ((seen + (1ull << GA_EPOCH_SHIFT)) & GA_EPOCH_MASK) | credit;
    } while (!atomic_compare_exchange_weak(ga_credit_word(&slot), &seen, next));
    atomic_store(ga_credit_low(&slot), next & ~(GA_FLAG_NOTIFY | GA_FLAG_CLOSED));
    if (take_all)
        atomic_fetch_sub(&granted, seen & GA_CREDIT_MASK);
}

static void *daemon_thread(void *arg) {
    (void)arg;
    uint64_t seed = seed0;
    while (!atomic_load(&stop)) {
        uint64_t what = test_random(&seed) % 4;
        change(test_random(&seed) % 100000, what == 0, what == 1 ? GA_FLAG_CLOSED : 0);
        move_streams();
        usleep(20);
    }
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = argc > 1 ? (size_t)atol(argv[1]) : 4;
    steps = argc > 2 ? atol(argv[2]) : steps;
    seed0 = argc > 3 ? (uint64_t)atol(argv[3]) : seed0;
    pthread_t thread[64], boss;
    CHECK(threads >= 1 && threads <= 64 && seed0 != 0);
    pthread_create(&boss, NULL, daemon_thread, NULL);
    for (size_t i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, client, (void *)(uintptr_t)(i + 1));
    for (size_t i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    atomic_store(&stop, true);
    pthread_join(boss, NULL);
    CHECK(atomic_load(&in_use) == 0);
    CHECK((slot.credit & GA_CREDIT_MASK) == atomic_load(&granted));
    move_streams();
    CHECK((slot.streams & GA_STREAMS_MASK) == 0);
    for (size_t i = 0; i < GA_TABLE_SHARDS; i++)
        CHECK(table.shards[i].used == 0);
    return 0;
}
