// SPDX-License-Identifier: Apache-2.0
#include "core/admit.h"

#include "core/link.h"
#include "core/log.h"
#include "core/objects.h"
#include "core/session.h"
#include "core/streams.h"

// How long an allocation that was refused waits for the program's own frees in stream order to
// execute. The driver waits for them as well before it runs out; it is bounded, because a
// stream may be waiting for something that this very thread does next.
#define PENDING_WAIT_MS 2000

// So often it asks again when something came back meanwhile: its siblings take of that too.
#define TRIES 16

// Returns the bytes of a device whose free has not been seen to execute.
static uint64_t unexecuted(struct ga_root *root, uint32_t device) {
    return atomic_load(&root->devices[device].late);
}

void ga_admit_lost(struct ga_root *root, const struct ga_entry *entry) {
    if (entry->kind == GA_MEMORY_MANAGED)
        ga_publish_managed(root, entry->device, 0 - entry->bytes);
    ga_release_entry(root, entry);
}

void ga_admit_sweep(struct ga_root *root, uint64_t context, uint32_t contexts) {
    uint64_t bytes[GA_DEVICES] = {0};
    uint64_t managed[GA_DEVICES] = {0};
    uint32_t notify[GA_DEVICES];
    struct ga_entry e;
    ga_move_begin(root);
    uint16_t tag = atomic_load(&root->tag);
    for (uint32_t i = 0; i < contexts; i++) {
        struct ga_walk walk = ga_table_walk(&root->blocks);
        while (ga_table_remove_next(&walk, context + i, &e)) {
            bytes[e.device] += e.tag == tag ? e.bytes : 0;
            managed[e.device] += e.kind == GA_MEMORY_MANAGED ? e.bytes : 0;
        }
    }
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        notify[d] = ga_release_in_move(root, d, bytes[d], tag);
    ga_move_end();
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (managed[d])
            ga_publish_managed(root, d, 0 - managed[d]);
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (notify[d])
            ga_session_freed(root, notify[d] - 1);
}

// What was seen before the daemon was asked.
struct before {
    uint64_t unexecuted, returned;
};

static struct before look_before(struct ga_root *root, uint32_t device) {
    return (struct before){unexecuted(root, device), atomic_load(&root->returned[device])};
}

static bool has_come(struct ga_root *root, uint32_t device, const struct before *b) {
    return atomic_load(&root->returned[device]) != b->returned ||
           unexecuted(root, device) < b->unexecuted;
}

// Waits until enough of what is pending came back. True: something has, from a pool, by itself, or
// by another thread that wanted it as well.
static bool wait_for_pending(struct ga_root *root, uint32_t device, uint64_t missing,
                             const struct before *before) {
    uint64_t reaped = 0;
    uint64_t end = ga_os_now_ms() + PENDING_WAIT_MS;
    for (uint64_t step_us = 20;; step_us += step_us / 4) {
        // Under pressure what pools keep has to come back, too.
        reaped += ga_interface_reap(root, device, missing - reaped);
        uint64_t late = unexecuted(root, device);
        uint64_t pending = late + atomic_load(&root->devices[device].kept);
        if (reaped >= missing || late == 0 || reaped + pending < missing || ga_os_now_ms() >= end)
            return reaped > 0 || has_come(root, device, before);
        ga_os_sleep_us(step_us < 2000 ? step_us : 2000);
    }
}

bool ga_admit_exceeds(struct ga_root *root, uint32_t device, uint64_t bytes) {
    struct ga_view *view = atomic_load(&root->view);
    uint32_t slot = view ? atomic_load(&view->slot[device]) : 0;
    if (!slot)
        return false;
    uint64_t limit = atomic_load((ga_word *)&view->page->lease[slot - 1].limit);
    return limit != 0 && bytes > limit;
}

// How an admission ended; ANOTHER_LINK: a daemon has come meanwhile, to be asked.
enum admitted { TAKEN, DENIED, ANOTHER_LINK };

// Counts bytes as debt, up to the most that there may be.
static bool add_debt(struct ga_root *root, uint32_t device, uint64_t bytes, uint64_t most) {
    _Atomic uint64_t *debt = &root->devices[device].debt;
    uint64_t owed = atomic_load(debt);
    do {
        if (owed > most || bytes > most - owed)
            return false;
    } while (!atomic_compare_exchange_weak(debt, &owed, owed + bytes));
    return true;
}

// Of a device that no daemon ever had a lease on all that is used is debt.
static enum admitted take_alone(struct ga_root *root, uint32_t device, uint64_t bytes,
                                uint64_t most, uint32_t epoch, uint16_t *tag) {
    enum admitted result = ANOTHER_LINK;
    ga_move_begin(root);
    if (atomic_load(&root->link_epoch) == epoch) {
        *tag = atomic_load(&root->tag);
        result = add_debt(root, device, bytes, most) ? TAKEN : DENIED;
        if (result == TAKEN)
            ga_inflight_add(device, bytes);
    }
    ga_move_end();
    return result;
}

// How many of the bytes come out of the lease's credit, so that what is used, and the credit that
// may still be used, stay within most together. No byte moves meanwhile.
static bool share_credit(struct ga_wire_lease_slot *lease, uint64_t used, uint64_t bytes,
                         uint64_t most, uint64_t *credit) {
    uint64_t word = atomic_load(ga_credit_word(lease));
    uint64_t idle = (word & GA_FLAG_CLOSED) != 0 ? 0 : word & GA_CREDIT_MASK;
    *credit = 0;
    if (used > most || bytes > most - used)
        return false;
    if (idle > most - used - bytes)
        *credit = idle - (most - used - bytes);
    if (*credit > bytes)
        *credit = bytes;
    return *credit == 0 || ga_credit_acquire(lease, *credit);
}

// Of another one it has to be summed up, while no byte moves: seldom, and only where the daemon
// is gone or answers with errors.
static enum admitted take_beside(struct ga_root *root, uint32_t device, uint64_t bytes,
                                 uint64_t most, uint32_t epoch, uint16_t *tag) {
    enum admitted result = ANOTHER_LINK;
    uint64_t credit;
    ga_link_lock(root);
    ga_threads_freeze(root);
    struct ga_view *view = atomic_load(&root->view);
    uint32_t slot = atomic_load(&view->slot[device]);
    if (atomic_load(&root->link_epoch) == epoch && slot != 0) {
        uint64_t used = ga_link_used(root, device);
        bool fits = share_credit(&view->page->lease[slot - 1], used, bytes, most, &credit);
        result = fits ? TAKEN : DENIED;
    }
    if (result == TAKEN) {
        *tag = atomic_load(&root->tag);
        atomic_fetch_add(&root->devices[device].debt, bytes - credit);
        ga_inflight_add(device, bytes);
    }
    ga_threads_thaw(root);
    ga_link_unlock(root);
    return result;
}

// No daemon, by the link of that epoch. What is taken all the same is counted, for the daemon that
// may come, and bounded by what the program declares for itself.
static enum admitted without_daemon(struct ga_root *root, enum ga_way way, uint32_t device,
                                    uint64_t bytes, uint32_t epoch, uint16_t *tag) {
    if (way != GA_WAY_OPEN)
        return DENIED;
    uint64_t declared = atomic_load(&root->declared[device]);
    struct ga_view *view = atomic_load(&root->view);
    enum admitted result;
    if (declared == 0)
        return take_alone(root, device, bytes, UINT64_MAX, epoch, tag);
    if (view && atomic_load(&view->slot[device]) != 0)
        result = take_beside(root, device, bytes, declared - 1, epoch, tag);
    else
        result = take_alone(root, device, bytes, declared - 1, epoch, tag);
    if (result == DENIED)
        ga_log("refused: %u bytes on device %u, beyond the %u that GPUARB_MEMORY says, without a "
               "daemon",
               bytes, (uint64_t)device, declared - 1);
    return result;
}

// Under gpuarb run the user hears of each that the daemon has words for, else of the first.
static void tell_refusal(struct ga_root *root, const uint8_t text[GA_TEXT_SIZE]) {
    if (text[0] && (root->env.in_job || atomic_exchange(&root->told, 1) == 0))
        ga_log_user("%t", text);
}

enum answer { GRANTED, REFUSED, WITHOUT };

// Takes what a reply granted into use, unless the session was resumed since: then the daemon has
// been told what is in use, and this was not in it.
static bool take_grant(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t epoch) {
    ga_move_begin(root);
    bool valid = atomic_load(&root->link_epoch) == epoch;
    if (valid)
        ga_inflight_add(device, bytes);
    ga_move_end();
    return valid;
}

static enum answer ask(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                       uint32_t flags, struct ga_reply *reply, enum ga_way *way) {
    struct ga_wire_alloc_request request = {
        .kind = kind, .bytes = bytes, .flags = flags, .thread = ga_self.number};
    ga_publish_again(root);
    for (reply->request = 0, *way = GA_WAY_ASK; *way == GA_WAY_ASK;) {
        *way = ga_session_ask(root, GA_TYPE_ALLOC, (int)device, &request, sizeof request, reply);
        if (*way == GA_WAY_ASK && reply->header.status == GA_STATUS_OK &&
            !take_grant(root, device, bytes, reply->epoch))
            continue; // a daemon that is gone granted it: ask its successor, by the same number
        break;
    }
    if (*way != GA_WAY_ASK)
        return WITHOUT;
    if (reply->header.status == GA_STATUS_OK)
        return GRANTED;
    if (reply->header.status < 100)
        return REFUSED;
    // An error, not a decision. It is logged, and treated like a daemon that is not there.
    ga_log("allocation of %u bytes: the daemon answers %u", bytes, (uint64_t)reply->header.status);
    *way = atomic_load(&root->on_loss) == GA_LOSS_CLOSED ? GA_WAY_CLOSED : GA_WAY_OPEN;
    return WITHOUT;
}

// Bytes of the program's own that are on their way back can help only where there is no room.
static bool is_no_room(uint32_t status) {
    return status == GA_STATUS_OVER_BUDGET || status == GA_STATUS_SHARED_FULL ||
           status == GA_STATUS_DEVICE_FULL;
}

static enum admitted admit(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                           bool at_once, uint16_t *tag) {
    uint32_t epoch = atomic_load(&root->link_epoch);
    enum ga_way way = ga_session_attach(root, device);
    if (way != GA_WAY_ASK)
        return without_daemon(root, way, device, bytes, epoch, tag);
    // What can never fit is asked for at once, so that the refusal is counted, and moves nothing.
    bool hopeless = ga_admit_exceeds(root, device, bytes);
    if (!hopeless && !at_once)
        ga_interface_reap(root, device, 0);
    if (ga_admit_fast(root, device, bytes, tag))
        return TAKEN;
    struct ga_reply reply;
    uint8_t text[GA_TEXT_SIZE] = {0};
    uint32_t flags = at_once ? GA_FLAG_NO_WAIT : 0;
    for (int tries = 1;; tries++) {
        struct before before = look_before(root, device);
        epoch = atomic_load(&root->link_epoch);
        switch (ask(root, device, bytes, kind, flags, &reply, &way)) {
        case GRANTED:
            *tag = reply.tag;
            return TAKEN;
        case WITHOUT:
            return without_daemon(root, way, device, bytes, epoch, tag);
        case REFUSED:
            break;
        }
        if (at_once)
            return DENIED;
        uint64_t remaining = 0;
        if (ga_message_fits(&reply, sizeof reply.body.alloc)) {
            remaining = reply.body.alloc.remaining;
            if (reply.body.alloc.text[0])
                ga_os_copy(text, reply.body.alloc.text, sizeof text);
        }
        uint64_t missing = remaining < bytes ? bytes - remaining : 1;
        uint32_t status = reply.header.status;
        if (hopeless || tries == TRIES || !is_no_room(status) ||
            !wait_for_pending(root, device, missing, &before))
            break;
        // Where others have the room, whether to wait for them was decided just now.
        flags = status == GA_STATUS_OVER_BUDGET ? 0 : GA_FLAG_NO_WAIT;
        if (ga_admit_fast(root, device, bytes, tag))
            return TAKEN;
    }
    tell_refusal(root, text);
    ga_log("refused: %u bytes on device %u (status %u, remaining %u)", bytes, (uint64_t)device,
           (uint64_t)reply.header.status, reply.body.alloc.remaining);
    return DENIED;
}

GA_NOINLINE bool ga_admit_slow(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                               uint16_t *tag) {
    enum admitted result;
    if (bytes == 0) { // the driver's own matter
        *tag = atomic_load(&root->tag);
        return true;
    }
    do {
        result = admit(root, device, bytes, kind, false, tag);
    } while (result == ANOTHER_LINK);
    return result == TAKEN;
}

bool ga_admit_at_once(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                      uint16_t *tag) {
    return ga_admit_fast(root, device, bytes, tag) ||
           admit(root, device, bytes, kind, true, tag) == TAKEN;
}

bool ga_admit_change(struct ga_root *root, struct ga_entry *entry, uint64_t bytes) {
    if (bytes < entry->bytes)
        ga_release(root, entry->device, entry->bytes - bytes, entry->tag);
    while (bytes > entry->bytes) {
        uint16_t tag;
        uint64_t rest = bytes - entry->bytes;
        if (!ga_admit(root, entry->device, rest, entry->kind, &tag))
            return false;
        if (tag == entry->tag)
            break;
        // The session began anew in between: what was charged before is nobody's.
        ga_release_entry(root, entry);
        entry->bytes = rest;
        entry->tag = tag;
    }
    entry->bytes = bytes;
    return true;
}

// True: it is granted, or is there whatever the daemon says.
static bool is_granted(enum ga_way way, const struct ga_reply *reply) {
    return way != GA_WAY_REFUSED && (way != GA_WAY_ASK || reply->header.status == GA_STATUS_OK ||
                                     reply->header.status >= 100);
}

// Asks for one until an answer has come by the link that lives, and counts what it gave. Without a
// daemon it counts too, for the one that may come, unless that is refused.
static enum ga_way take_object(struct ga_root *root, enum ga_object what, uint32_t device,
                               uint32_t flags, struct ga_reply *reply, uint16_t *tag) {
    struct ga_wire_context_request request = ga_objects_request(what, 1, flags, ga_self.number);
    bool counted = false;
    enum ga_way way;
    reply->request = 0;
    do {
        uint32_t epoch = atomic_load(&root->link_epoch);
        way = ga_session_ask(root, ga_objects_type(what), (int)device, &request, sizeof request,
                             reply);
        if (!is_granted(way, reply) && !(flags & GA_FLAG_NOTICED))
            return way;
        if (way == GA_WAY_ASK)
            epoch = reply->epoch;
        ga_move_begin(root);
        *tag = atomic_load(&root->tag);
        counted = atomic_load(&root->link_epoch) == epoch;
        if (counted)
            ga_objects_add(root, what, device, ga_self.number, 1);
        ga_move_end();
    } while (!counted); // what a daemon granted that is gone its successor is asked for
    return way;
}

// Counts streams in the lease's page, where the daemon lends their count. False: it does not, or
// that is all that there may be.
static inline bool count_streams(struct ga_root *root, uint32_t device, int32_t count,
                                 uint32_t maker, uint16_t *tag) {
    ga_move_begin(root);
    struct ga_view *view = atomic_load(&root->view);
    uint32_t slot = view ? atomic_load(&view->slot[device]) : 0;
    bool counted = false;
    if (slot && count > 0) {
        counted = ga_streams_acquire(&view->page->lease[slot - 1]);
        *tag = counted ? view->tag : *tag;
    } else if (slot && view->tag == *tag) {
        counted = ga_streams_release(&view->page->lease[slot - 1], 0 - (uint32_t)count);
    }
    if (counted)
        ga_objects_add(root, GA_OBJECT_STREAM, device, maker, count);
    ga_move_end();
    return counted;
}

static void tell_no_object(struct ga_root *root, enum ga_object what, uint32_t device,
                           const struct ga_reply *reply) {
    if (what != GA_OBJECT_STREAM) {
        if (ga_message_fits(reply, sizeof reply->body.context))
            tell_refusal(root, reply->body.context.text);
        ga_log("refused: a context on device %u (status %u)", (uint64_t)device,
               (uint64_t)reply->header.status);
    } else if (ga_message_fits(reply, sizeof reply->body.stream)) {
        tell_refusal(root, reply->body.stream.text);
        ga_log("refused: a stream on device %u, %u of %u are taken", (uint64_t)device,
               (uint64_t)reply->body.stream.current, (uint64_t)reply->body.stream.max);
    }
}

bool ga_admit_object(struct ga_root *root, enum ga_object what, uint32_t device, uint32_t flags,
                     uint16_t *tag) {
    struct ga_reply reply;
    if (what == GA_OBJECT_STREAM && count_streams(root, device, 1, ga_self.number, tag))
        return true;
    enum ga_way way = take_object(root, what, device, flags, &reply, tag);
    // Without a daemon there is no cap: what is counted here is no device memory.
    if (is_granted(way, &reply) || flags & GA_FLAG_NOTICED)
        return true;
    if (way == GA_WAY_ASK)
        tell_no_object(root, what, device, &reply);
    return false;
}

void ga_admit_return(struct ga_root *root, enum ga_object what, uint32_t device, int32_t count,
                     uint32_t maker, uint16_t tag) {
    if (what != GA_OBJECT_STREAM || !count_streams(root, device, -count, maker, &tag))
        ga_session_release(root, what, device, count, maker, tag);
}
