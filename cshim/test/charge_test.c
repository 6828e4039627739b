// SPDX-License-Identifier: Apache-2.0
// charge_test: bytes that records hold, by threads that give back what others took, and by threads
// that come and go. There is no daemon, so that what is in use is debt, to the byte.
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "check.h"
#include "core/admit.h"
#include "core/device.h"
#include "core/link.h"
#include "core/records.h"

#define DEVICE 0
#define BYTES 3

static struct ga_root *enter(void) {
    struct ga_root *root = ga_root_get();
    CHECK(root && ga_self.thread);
    CHECK(ga_device_number(root, (const uint8_t[GA_UUID_SIZE]){7}) == DEVICE);
    return root;
}

static struct ga_charge *take(struct ga_root *root, uint64_t bytes) {
    struct ga_entry entry = {.bytes = bytes, .device = DEVICE, .kind = GA_MEMORY_PLAIN};
    CHECK(ga_admit(root, DEVICE, bytes, entry.kind, &entry.tag));
    struct ga_charge *charge = ga_charge_hold(root, &entry);
    CHECK(charge);
    return charge;
}

// In turns one record does, and the next takes what a thread has to spare.
static void alone(void) {
    struct ga_root *root = enter();
    struct ga_charge *first = take(root, BYTES);
    CHECK(ga_link_used(root, DEVICE) == BYTES && atomic_load(&root->charges.most) == 1);
    ga_charge_drop(root, first);
    CHECK(ga_link_used(root, DEVICE) == 0);
    CHECK(take(root, BYTES) == first);
    struct ga_entry entry = ga_charge_withdraw(root, first);
    CHECK(entry.bytes == BYTES && entry.device == DEVICE && entry.kind == GA_MEMORY_PLAIN);
    CHECK(ga_link_used(root, DEVICE) == BYTES);
    ga_release(root, DEVICE, BYTES, entry.tag);
    CHECK(ga_link_used(root, DEVICE) == 0 && atomic_load(&root->charges.most) == 1);
}

static void recount(struct ga_root *root) {
    ga_self_enter();
    ga_charge_recount(root);
    ga_self_leave();
}

// More than one block of records. What is told is never less than there are, nor much more once it
// was counted anew.
static void many(void) {
    enum { MANY = 1000 };
    static struct ga_charge *charges[MANY];
    struct ga_root *root = enter();
    for (uint64_t turn = 0; turn < 2; turn++) {
        for (uint64_t i = 0; i < MANY; i++)
            charges[i] = take(root, i);
        CHECK(ga_link_used(root, DEVICE) == MANY * (MANY - 1) / 2);
        CHECK(atomic_load(&root->charges.most) == MANY);
        for (uint64_t i = 0; i < MANY; i++)
            ga_charge_drop(root, charges[i]);
        CHECK(ga_link_used(root, DEVICE) == 0);
        recount(root);
        CHECK(atomic_load(&root->charges.most) == 1);
    }
}

#define SLOTS 32
static _Atomic(struct ga_charge *) slots[SLOTS];
static _Atomic bool stop;

static void end(struct ga_root *root, struct ga_charge *charge, bool halfway) {
    if (halfway) {
        struct ga_entry entry = ga_charge_withdraw(root, charge);
        ga_release(root, entry.device, entry.bytes, entry.tag);
    } else {
        ga_charge_drop(root, charge);
    }
}

static void *moves(void *arg) {
    uint64_t seed = 77 + (uintptr_t)arg;
    struct ga_root *root = enter();
    while (!atomic_load(&stop)) {
        uint64_t n = test_random(&seed);
        struct ga_charge *charge = n & 1 ? take(root, 1 + n % 1000) : NULL;
        charge = atomic_exchange(&slots[n / 2 % SLOTS], charge);
        if (charge)
            end(root, charge, n >> 40 & 1);
    }
    return NULL;
}

// Whenever no byte moves each is counted once.
static void race(void) {
    pthread_t thread[4];
    struct ga_root *root = enter();
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, moves, (void *)i) == 0);
    for (int i = 0; i < 200; i++) {
        ga_link_lock(root);
        ga_threads_freeze(root);
        uint64_t used = ga_link_used(root, DEVICE);
        uint64_t owed = atomic_load(&root->devices[DEVICE].debt);
        ga_threads_thaw(root);
        ga_link_unlock(root);
        CHECK(used == owed);
        sched_yield();
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < SLOTS; i++) {
        struct ga_charge *charge = atomic_exchange(&slots[i], NULL);
        if (charge)
            end(root, charge, false);
    }
    CHECK(ga_link_used(root, DEVICE) == 0);
    CHECK(atomic_load(&root->devices[DEVICE].debt) == 0);
    recount(root);
    CHECK(atomic_load(&root->charges.most) <= 5);
}

static void *comes_and_goes(void *arg) {
    (void)arg;
    struct ga_root *root = enter();
    ga_charge_drop(root, take(root, BYTES));
    return NULL;
}

// What threads have to spare that are over is bounded.
static void later(void) {
    struct ga_root *root = enter();
    for (int i = 0; i < 3000; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, comes_and_goes, NULL) == 0);
        pthread_join(thread, NULL);
    }
    CHECK(ga_link_used(root, DEVICE) == 0);
    CHECK(atomic_load(&root->charges.most) <= GA_CHARGE_SPARES + 1);
}

static struct ga_records records;
static _Atomic bool given;

// Gives a record back as a caller does that holds a lock of its own.
static void *gives_inside(void *record) {
    enter();
    ga_self_enter();
    ga_records_give(&records, record);
    ga_self_leave();
    atomic_store(&given, true);
    return NULL;
}

// A record that is given back with another lock held waits for the lock of the records.
static void inside(void) {
    struct ga_root *root = enter();
    pthread_t thread;
    void *record = ga_records_take(root, &records, 64);
    CHECK(record);
    ga_self_lock(&records.lock);
    CHECK(pthread_create(&thread, NULL, gives_inside, record) == 0);
    usleep(100000);
    CHECK(!atomic_load(&given) && records.unused == NULL);
    ga_self_unlock(&records.lock);
    pthread_join(thread, NULL);
    CHECK(ga_records_take(root, &records, 64) == record);
}

int main(void) {
    char socket[64];
    snprintf(socket, sizeof socket, "/tmp/gpuarb-charge-%d", (int)getpid());
    setenv("GPUARB_SOCKET", socket, 1);
    setenv("GPUARB_ON_LOSS", "open", 1);
    alarm(240);
    alone();
    many();
    race();
    later();
    inside();
    return 0;
}
