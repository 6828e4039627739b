// SPDX-License-Identifier: Apache-2.0
#include "budget.h"

#include "session.h"

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static bool same(const uint8_t a[GA_UUID_SIZE], const uint8_t b[GA_UUID_SIZE]) {
    for (size_t i = 0; i < GA_UUID_SIZE; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

// The latch of a device; NULL: there are more devices than anybody has.
static struct ga_latch *latch_of(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE]) {
    struct ga_latch *found = NULL;
    ga_self_enter();
    ga_spin_lock(&root->latches_lock);
    for (size_t i = 0; i < GA_DEVICES && !found; i++) {
        struct ga_latch *l = &root->latches[i];
        if (!l->known)
            ga_os_copy(l->uuid, uuid, GA_UUID_SIZE);
        l->known = true;
        if (same(l->uuid, uuid))
            found = l;
    }
    ga_spin_unlock(&root->latches_lock);
    ga_self_leave();
    return found;
}

// Free is the budget less what is used, and never more than the device had room for when the
// program first asked: frameworks abort when it grows by what others do. The most that it can
// be is therefore fixed then, as room + used. One that is 0 is not fixed yet.
static uint64_t latch(struct ga_latch *l, uint64_t room, uint64_t used) {
    uint64_t seen = 0;
    uint64_t most = room + used;
    if (!l || atomic_compare_exchange_strong(&l->most, &seen, most))
        return most;
    return seen;
}

static bool ask(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE],
                struct ga_wire_query_reply *answer) {
    struct ga_wire_query_request query;
    struct ga_reply reply = {.request = 0};
    if (!root->env.virtualize)
        return false;
    ga_os_copy(query.device, uuid, sizeof query.device);
    if (ga_session_ask(root, GA_TYPE_QUERY, -1, &query, sizeof query, &reply, GA_REPLY_MS) !=
            GA_WAY_ASK ||
        reply.header.status != GA_STATUS_OK || !ga_session_fits(&reply, sizeof reply.body.query))
        return false;
    *answer = reply.body.query;
    return true;
}

bool ga_budget_ask(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE], uint64_t capacity,
                   struct ga_budget *budget) {
    struct ga_wire_query_reply q;
    if (!ask(root, uuid, &q))
        return false;
    uint64_t total = least(q.total, capacity);
    uint64_t most = least(total, latch(latch_of(root, uuid), q.room, q.used));
    *budget = (struct ga_budget){
        .total = total, .used = q.used, .room = most > q.used ? most - q.used : 0};
    return true;
}

// Programs ask this before they make a context, which takes room: what is free is not fixed by it.
bool ga_budget_ask_total(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE], uint64_t capacity,
                         uint64_t *total) {
    struct ga_wire_query_reply q;
    if (!ask(root, uuid, &q))
        return false;
    *total = least(q.total, capacity);
    return true;
}
