// SPDX-License-Identifier: Apache-2.0
// Answers from the daemon about the memory of devices, and how long they hold. The lease page gives
// most answers without a request; the last reply is a second source.
#include "core/budget.h"

#include "core/credit.h"
#include "core/device.h"
#include "core/session.h"

// How long the last reply is reused if the daemon publishes no figures in the lease page. A program
// that asks in a loop then does not send a request each time. Changes by other jobs show this much
// later.
#define FRESH_MS 50

// Number of times the figures in the page are read again when the daemon changes them meanwhile.
#define READS 64

static uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

// Returns the record of the answer about a device, or a free record. NULL: more devices than any
// process has. The caller holds answers_lock.
static struct ga_answer *record_of(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE]) {
    for (size_t i = 0; i < GA_DEVICES; i++) {
        struct ga_answer *a = &root->answers[i];
        if (!a->known || ga_device_same(a->uuid, uuid))
            return a;
    }
    return NULL;
}

static bool find_answer(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE],
                        struct ga_answer *to) {
    ga_self_lock(&root->answers_lock);
    const struct ga_answer *a = record_of(root, uuid);
    bool found = a && a->known;
    if (found)
        *to = *a;
    ga_self_unlock(&root->answers_lock);
    return found;
}

static void store_answer(struct ga_root *root, const struct ga_answer *answer) {
    ga_self_lock(&root->answers_lock);
    struct ga_answer *a = record_of(root, answer->uuid);
    if (a)
        *a = *answer;
    ga_self_unlock(&root->answers_lock);
}

// Returns the credit word of the lease that an answer is about; 0: there is no lease.
static uint64_t word_of(const struct ga_answer *a) {
    return a->slot < GA_PAGE_SLOTS && a->view
               ? atomic_load(ga_credit_word(&a->view->page->lease[a->slot]))
               : 0;
}

// Computes the budget of now from an earlier answer: credit that the process took since is used,
// credit that it returned is free. False: something else has changed, too.
static bool project(struct ga_root *root, const struct ga_answer *a, struct ga_budget *budget) {
    uint64_t word = word_of(a);
    if (atomic_load(&root->view) != a->view || atomic_load(&root->link_epoch) != a->link_epoch ||
        atomic_load(&root->asked) != a->asked || ((word ^ a->word) & GA_EPOCH_MASK))
        return false;
    uint64_t then = a->word & GA_CREDIT_MASK;
    uint64_t now = word & GA_CREDIT_MASK;
    budget->total = a->total;
    budget->limited = a->limited;
    budget->used = less(a->used + less(then, now), less(now, then));
    budget->room = less(a->room + less(now, then), less(then, now));
    return true;
}

// Reads the figures that the daemon publishes in the page about the lease of the last answer.
// False: it publishes none, or they are out of date.
static bool read_published(struct ga_root *root, const struct ga_answer *a,
                           struct ga_budget *budget) {
    if (a->slot >= GA_PAGE_SLOTS || !a->view || atomic_load(&root->view) != a->view ||
        atomic_load(&root->link_epoch) != a->link_epoch || atomic_load(&root->link) != GA_LINK_LIVE)
        return false;
    struct ga_wire_page *page = a->view->page;
    struct ga_wire_shown *s = &page->shown[a->slot];
    for (int i = 0; i < READS; i++) {
        uint64_t before = atomic_load(ga_credit_word(&page->lease[a->slot]));
        uint64_t room = atomic_load((ga_word *)&s->room);
        uint64_t used = atomic_load((ga_word *)&s->used);
        uint64_t total = atomic_load((ga_word *)&s->total);
        uint64_t at = atomic_load((ga_word *)&s->at);
        uint64_t after = atomic_load(ga_credit_word(&page->lease[a->slot]));
        if (!(room & GA_SHOWN_TOLD) || (after & GA_FLAG_CLOSED) ||
            ga_os_coarse_ms() - at > GA_SHOWN_MS)
            return false;
        if (((before ^ room) | (before ^ after)) & GA_EPOCH_MASK)
            continue;
        uint64_t credit = after & GA_CREDIT_MASK;
        *budget = (struct ga_budget){.total = total,
                                     .used = less(used, credit),
                                     .room = (room & GA_CREDIT_MASK) + credit,
                                     .limited = room & GA_SHOWN_LIMITED};
        return true;
    }
    return false;
}

// Asks the daemon. An older daemon does not send the credit word from which it computed its answer.
// Without that word, later changes of the credit cannot be added to the answer, so it is used once
// and not stored.
static enum ga_way ask(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE], struct ga_answer *a,
                       bool *ok) {
    struct ga_wire_room_request request; // its layout is that of a query
    struct ga_reply reply = {.request = 0};
    _Static_assert(sizeof request == sizeof(struct ga_wire_query_request), "a UUID");
    *a = (struct ga_answer){
        .known = true, .limited = true, .slot = GA_NO_SLOT, .at_ms = ga_os_coarse_ms()};
    ga_os_copy(a->uuid, uuid, sizeof a->uuid);
    ga_os_copy(request.device, uuid, sizeof request.device);
    enum ga_way way = ga_session_ensure(root);
    *ok = false;
    if (way != GA_WAY_ASK)
        return way;
    bool room = atomic_load(&root->able) & GA_ABLE_ROOM;
    a->view = atomic_load(&root->view);
    a->asked = atomic_load(&root->asked);
    way = ga_session_ask(root, room ? GA_TYPE_ROOM : GA_TYPE_QUERY, -1, &request, sizeof request,
                         &reply);
    if (way != GA_WAY_ASK || reply.header.status != GA_STATUS_OK)
        return way;
    // The first fields of both replies are identical.
    a->total = reply.body.room.total;
    a->used = reply.body.room.used;
    a->room = reply.body.room.room;
    a->link_epoch = reply.epoch;
    if (room && ga_message_fits(&reply, sizeof reply.body.room)) {
        a->word = reply.body.room.word;
        a->slot = reply.body.room.slot;
        a->limited = reply.body.room.flags & GA_ROOM_LIMITED;
        store_answer(root, a);
        *ok = true;
    } else {
        *ok = !room && ga_message_fits(&reply, sizeof reply.body.query);
    }
    return way;
}

// Answers while there is no daemon: only credit that was granted already can be had.
static void without_daemon(struct ga_root *root, const struct ga_answer *a,
                           struct ga_budget *budget) {
    if (!project(root, a, budget))
        *budget = (struct ga_budget){.total = a->total, .used = a->used, .limited = a->limited};
    uint64_t word = word_of(a);
    budget->room = word & GA_FLAG_CLOSED ? 0 : word & GA_CREDIT_MASK;
}

bool ga_budget_ask(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE], uint64_t capacity,
                   struct ga_budget *budget) {
    struct ga_answer last, now;
    bool ok;
    if (!root->env.virtualize)
        return false;
    bool known = find_answer(root, uuid, &last);
    bool fresh =
        known && (read_published(root, &last, budget) ||
                  (ga_os_coarse_ms() - last.at_ms < FRESH_MS && project(root, &last, budget)));
    if (!fresh) {
        enum ga_way way = ask(root, uuid, &now, &ok);
        if (ok)
            *budget = (struct ga_budget){
                .total = now.total, .used = now.used, .room = now.room, .limited = now.limited};
        else if (way == GA_WAY_CLOSED && known)
            without_daemon(root, &last, budget);
        else
            return false;
    }
    budget->total = ga_os_least(budget->total, capacity);
    budget->room = ga_os_least(budget->room, less(budget->total, budget->used));
    return true;
}
