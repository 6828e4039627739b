// SPDX-License-Identifier: Apache-2.0
#include "hold.h"

#include "admit.h"
#include "session.h"

bool ga_hold_matters(struct ga_root *root, uint32_t device) {
    return ga_session_attach(root, device) == GA_WAY_ASK &&
           atomic_load(&root->slot_scope[device]) == GA_SCOPE_THREAD;
}

static uint64_t key_of(uint32_t thread, uint32_t device) {
    return (uint64_t)thread << 8 | device;
}

// The entry names the thread twice: by its number, and by what the kernel knows it by.
static bool remember(struct ga_root *root, uint32_t device, uint16_t tag) {
    struct ga_entry entry = {.key = key_of(ga_self.number, device),
                             .bytes = ga_self.number,
                             .context = ga_self.tid,
                             .device = (uint8_t)device,
                             .tag = tag};
    struct ga_entry old;
    ga_self_enter();
    bool put = ga_table_put(&root->holds, &entry, &old);
    ga_self_leave();
    return put;
}

static void give_back(struct ga_root *root, uint64_t key) {
    struct ga_entry entry;
    ga_self_enter();
    bool found = ga_table_take(&root->holds, key, &entry);
    ga_self_leave();
    uint16_t tag = entry.tag;
    if (found)
        ga_admit_contexts(root, entry.device, -1, GA_FLAG_HOLD, (uint32_t)entry.bytes, &tag);
}

bool ga_hold_take(struct ga_root *root, uint32_t device) {
    uint16_t tag = atomic_load(&root->tag);
    if ((ga_self.holds >> device & 1) && ga_self.holds_tag == tag)
        return true;
    if (ga_self.holds_tag != tag) // of a session that is over
        ga_hold_drop(root);
    if (!ga_admit_contexts(root, device, 1, GA_FLAG_HOLD, ga_self.number, &tag))
        return false;
    if (!remember(root, device, tag)) {
        ga_admit_contexts(root, device, -1, GA_FLAG_HOLD, ga_self.number, &tag);
        return true;
    }
    ga_self.holds |= 1u << device;
    ga_self.holds_tag = tag;
    return true;
}

void ga_hold_drop(struct ga_root *root) {
    for (uint32_t d = 0; ga_self.holds != 0; d++) {
        if (ga_self.holds & 1u << d)
            give_back(root, key_of(ga_self.number, d));
        ga_self.holds &= ~(1u << d);
    }
}

// Some of the entries: whether their threads live is not asked under the table's locks.
#define BATCH 32
struct batch {
    uint32_t skip;
    uint32_t count;
    uint64_t key[BATCH];
    int tid[BATCH];
};

static void collect(void *arg, const struct ga_entry *e) {
    struct batch *b = arg;
    if (b->skip > 0) {
        b->skip--;
        return;
    }
    if (b->count == BATCH)
        return;
    b->tid[b->count] = (int)e->context;
    b->key[b->count++] = e->key;
}

// What moves in the table meanwhile is found the next time.
void ga_hold_bury(struct ga_root *root) {
    struct batch b;
    int pid = ga_os_pid();
    uint32_t living = 0;
    do {
        b.skip = living;
        b.count = 0;
        ga_self_enter();
        ga_table_each(&root->holds, collect, &b);
        ga_self_leave();
        for (uint32_t i = 0; i < b.count; i++) {
            if (ga_os_thread_lives(pid, b.tid[i]))
                living++;
            else
                give_back(root, b.key[i]);
        }
    } while (b.count == BATCH);
}
