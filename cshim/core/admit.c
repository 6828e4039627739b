// SPDX-License-Identifier: Apache-2.0
// Admission of bytes and objects: asks the daemon when the credit word does not suffice, and
// applies the policy when there is no daemon. admit.h has the fast path; session.c sends the
// requests.
#include "core/admit.h"

#include "core/link.h"
#include "core/log.h"
#include "core/objects.h"
#include "core/session.h"
#include "core/streams.h"

// Longest wait of a refused allocation for the program's own stream-ordered frees to execute. The
// driver also waits for them before it reports that memory has run out. The wait is bounded,
// because a stream may itself wait for something that this thread does next.
#define PENDING_WAIT_MS 2000

// Number of times a refused allocation asks again after memory came back. More than one try is
// needed, because other threads of the process take memory that came back, too.
#define TRIES 16

// Returns the bytes of a device whose stream-ordered free has not been seen to execute.
static uint64_t unexecuted(struct ga_root *root, uint32_t device) {
    return atomic_load(&root->devices[device].unexecuted);
}

void ga_admit_unseen_free(struct ga_root *root, const struct ga_entry *entry) {
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

// State of a device's pending bytes before the daemon was asked.
struct before {
    uint64_t unexecuted, returned;
};

static struct before read_before(struct ga_root *root, uint32_t device) {
    return (struct before){unexecuted(root, device), atomic_load(&root->returned[device])};
}

static bool has_returned(struct ga_root *root, uint32_t device, const struct before *b) {
    return atomic_load(&root->returned[device]) != b->returned ||
           unexecuted(root, device) < b->unexecuted;
}

// Waits until at least `missing` pending bytes have come back, or no more can come. True: some
// bytes came back since `before`, from a pool or by another thread's reap.
static bool wait_for_pending(struct ga_root *root, uint32_t device, uint64_t missing,
                             const struct before *before) {
    uint64_t reaped = 0;
    uint64_t end = ga_os_now_ms() + PENDING_WAIT_MS;
    for (uint64_t step_us = 20;; step_us += step_us / 4) {
        // When memory is short, pools must give up their unused bytes as well.
        reaped += ga_interface_reap(root, device, missing - reaped);
        uint64_t frees = unexecuted(root, device);
        uint64_t pending = frees + atomic_load(&root->devices[device].pool_unused);
        if (reaped >= missing || frees == 0 || reaped + pending < missing || ga_os_now_ms() >= end)
            return reaped > 0 || has_returned(root, device, before);
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

// Result of an admission. ANOTHER_LINK: a daemon has appeared meanwhile and must be asked.
enum admitted { ACQUIRED, DENIED, ANOTHER_LINK };

// Adds bytes to the debt of a device. False: the debt would exceed `most`, and stays as it was.
static bool add_debt(struct ga_root *root, uint32_t device, uint64_t bytes, uint64_t most) {
    _Atomic uint64_t *debt = &root->devices[device].debt;
    uint64_t owed = atomic_load(debt);
    do {
        if (owed > most || bytes > most - owed)
            return false;
    } while (!atomic_compare_exchange_weak(debt, &owed, owed + bytes));
    return true;
}

// Acquires bytes of a device on which no daemon has ever opened a lease. There is no credit, so all
// bytes in use are debt: they are reported to the next daemon. The debt stays at or below `most`.
static enum admitted acquire_as_debt(struct ga_root *root, uint32_t device, uint64_t bytes,
                                     uint64_t most, uint32_t epoch, uint16_t *tag) {
    enum admitted result = ANOTHER_LINK;
    ga_move_begin(root);
    if (atomic_load(&root->link_epoch) == epoch) {
        *tag = atomic_load(&root->tag);
        result = add_debt(root, device, bytes, most) ? ACQUIRED : DENIED;
        if (result == ACQUIRED)
            ga_inflight_add(device, bytes);
    }
    ga_move_end();
    return result;
}

// Computes how many of the bytes must come out of the lease's credit, so that used bytes and
// remaining credit together stay within `most`. Acquires these bytes. The caller has frozen all
// moves.
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

// Acquires bytes of a device that has a lease, while the daemon is gone or answers with errors.
// Sums up what is in use with all moves frozen. This is slow, but rare.
static enum admitted acquire_with_lease(struct ga_root *root, uint32_t device, uint64_t bytes,
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
        result = fits ? ACQUIRED : DENIED;
    }
    if (result == ACQUIRED) {
        *tag = atomic_load(&root->tag);
        atomic_fetch_add(&root->devices[device].debt, bytes - credit);
        ga_inflight_add(device, bytes);
    }
    ga_threads_thaw(root);
    ga_link_unlock(root);
    return result;
}

// Admits bytes without a daemon; epoch is that of the link under which none was found. Counts the
// bytes as debt for a daemon that may start later. The program's own declared limit is the bound.
static enum admitted without_daemon(struct ga_root *root, enum ga_way way, uint32_t device,
                                    uint64_t bytes, uint32_t epoch, uint16_t *tag) {
    if (way != GA_WAY_OPEN)
        return DENIED;
    uint64_t declared = atomic_load(&root->declared[device]);
    struct ga_view *view = atomic_load(&root->view);
    enum admitted result;
    if (declared == 0)
        return acquire_as_debt(root, device, bytes, UINT64_MAX, epoch, tag);
    if (view && atomic_load(&view->slot[device]) != 0)
        result = acquire_with_lease(root, device, bytes, declared - 1, epoch, tag);
    else
        result = acquire_as_debt(root, device, bytes, declared - 1, epoch, tag);
    if (result == DENIED)
        ga_log("refused: %u bytes on device %u, beyond the %u that GPUARB_MEMORY says, without a "
               "daemon",
               bytes, (uint64_t)device, declared - 1);
    return result;
}

// Reports a refusal to the user: under gpuarb run each refusal for which the daemon sent a text,
// with a bare preload only the first.
static void report_refusal(struct ga_root *root, const uint8_t text[GA_TEXT_SIZE]) {
    if (text[0] && (root->env.in_job || atomic_exchange(&root->refusal_reported, 1) == 0))
        ga_log_user("%t", text);
}

enum answer { GRANTED, REFUSED, WITHOUT };

// Counts granted bytes as in flight. False: the session was resumed since the grant. The resume
// told the daemon what is in use without these bytes, so the grant is void.
static bool count_grant(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t epoch) {
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
            !count_grant(root, device, bytes, reply->epoch))
            continue; // the granting daemon is gone: ask the new one, with the same request number
        break;
    }
    if (*way != GA_WAY_ASK)
        return WITHOUT;
    if (reply->header.status == GA_STATUS_OK)
        return GRANTED;
    if (reply->header.status < 100)
        return REFUSED;
    // The daemon answered with an error instead of a decision. Log it, and continue as without a
    // daemon.
    ga_log("allocation of %u bytes: the daemon answers %u", bytes, (uint64_t)reply->header.status);
    *way = atomic_load(&root->on_loss) == GA_LOSS_CLOSED ? GA_WAY_CLOSED : GA_WAY_OPEN;
    return WITHOUT;
}

// Reports whether a refusal is for lack of room. Only then can the program's own pending bytes
// help.
static bool is_no_room(uint32_t status) {
    return status == GA_STATUS_OVER_BUDGET || status == GA_STATUS_SHARED_FULL ||
           status == GA_STATUS_DEVICE_FULL;
}

// Admits bytes by a request with these flags. GA_FLAG_NO_WAIT: never waits, and reports no refusal.
// GA_FLAG_DRIVER_FULL, GA_FLAG_DRIVER_FULL_AGAIN: ask the daemon even if the credit word has enough
// bytes.
static enum admitted admit(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                           uint32_t flags, uint16_t *tag) {
    bool no_wait = flags & GA_FLAG_NO_WAIT;
    uint32_t full = flags & (GA_FLAG_DRIVER_FULL | GA_FLAG_DRIVER_FULL_AGAIN);
    uint32_t epoch = atomic_load(&root->link_epoch);
    enum ga_way way = ga_session_attach(root, device);
    if (way != GA_WAY_ASK)
        return without_daemon(root, way, device, bytes, epoch, tag);
    // An allocation over the whole limit can never fit. Send the request anyway, so that the daemon
    // counts the refusal, but reap no pools for it. The daemon also refuses what the driver refused
    // twice.
    bool hopeless = full == GA_FLAG_DRIVER_FULL_AGAIN || ga_admit_exceeds(root, device, bytes);
    if (full)
        ga_self_take_back(device);
    if (!hopeless && !no_wait)
        ga_interface_reap(root, device, 0);
    if (!full && ga_admit_fast(root, device, bytes, tag))
        return ACQUIRED;
    struct ga_reply reply;
    uint8_t text[GA_TEXT_SIZE] = {0};
    for (int tries = 1;; tries++) {
        struct before before = read_before(root, device);
        epoch = atomic_load(&root->link_epoch);
        switch (ask(root, device, bytes, kind, flags, &reply, &way)) {
        case GRANTED:
            *tag = reply.tag;
            ga_self_grant(device);
            return ACQUIRED;
        case WITHOUT:
            return without_daemon(root, way, device, bytes, epoch, tag);
        case REFUSED:
            break;
        }
        if (no_wait)
            return DENIED;
        ga_self.refused |= 1u << device;
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
        // If other jobs use the room, the daemon has just decided whether to wait for them: do not
        // wait again.
        flags = full | (status == GA_STATUS_OVER_BUDGET ? 0 : GA_FLAG_NO_WAIT);
        if (!full && ga_admit_fast(root, device, bytes, tag))
            return ACQUIRED;
    }
    report_refusal(root, text);
    ga_log("refused: %u bytes on device %u (status %u, remaining %u)", bytes, (uint64_t)device,
           (uint64_t)reply.header.status, reply.body.alloc.remaining);
    return DENIED;
}

GA_NOINLINE bool ga_admit_slow(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                               uint32_t full, uint16_t *tag) {
    enum admitted result;
    if (bytes == 0) { // the driver decides about allocations of 0 bytes
        *tag = atomic_load(&root->tag);
        return true;
    }
    do {
        result = admit(root, device, bytes, kind, full, tag);
    } while (result == ANOTHER_LINK);
    return result == ACQUIRED;
}

bool ga_admit_no_wait(struct ga_root *root, uint32_t device, uint64_t bytes, uint32_t kind,
                      uint16_t *tag) {
    return ga_admit_fast(root, device, bytes, tag) ||
           admit(root, device, bytes, kind, GA_FLAG_NO_WAIT, tag) == ACQUIRED;
}

GA_NOINLINE bool ga_admit_again_slow(struct ga_root *root, uint32_t *full) {
    if (*full == GA_FLAG_DRIVER_FULL_AGAIN || !(atomic_load(&root->able) & GA_ABLE_DRIVER_FULL))
        return false;
    *full = *full ? GA_FLAG_DRIVER_FULL_AGAIN : GA_FLAG_DRIVER_FULL;
    return true;
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
        // The session was replaced between the two admissions, so the earlier bytes are charged
        // nowhere.
        ga_release_entry(root, entry);
        entry->bytes = rest;
        entry->tag = tag;
    }
    entry->bytes = bytes;
    return true;
}

// Reports whether an object may be made: the daemon granted it, or there is no daemon to decide.
static bool is_granted(enum ga_way way, const struct ga_reply *reply) {
    return way != GA_WAY_REFUSED && (way != GA_WAY_ASK || reply->header.status == GA_STATUS_OK ||
                                     reply->header.status >= 100);
}

// Requests one object until the answer belongs to the current link, and counts the object if it was
// granted. Without a daemon also counts it, for a daemon that may start later, unless the policy
// refuses it.
static enum ga_way acquire_object(struct ga_root *root, enum ga_object what, uint32_t device,
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
    } while (!counted); // the granting daemon is gone: ask the new one
    return way;
}

// Adds to or subtracts from the stream count in the lease page, if the daemon has lent that count
// to this process. False: the process has no lease on the device, the daemon keeps the count
// itself, or the count does not allow the change: a new stream exceeds the maximum, or the
// streams to subtract belong to a session (*tag) that is over.
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
    ga_publish_call(root, device);
    return counted;
}

static void report_no_object(struct ga_root *root, enum ga_object what, uint32_t device,
                             const struct ga_reply *reply) {
    if (what != GA_OBJECT_STREAM) {
        if (ga_message_fits(reply, sizeof reply->body.context))
            report_refusal(root, reply->body.context.text);
        ga_log("refused: a context on device %u (status %u)", (uint64_t)device,
               (uint64_t)reply->header.status);
    } else if (ga_message_fits(reply, sizeof reply->body.stream)) {
        report_refusal(root, reply->body.stream.text);
        ga_log("refused: a stream on device %u, %u of %u are taken", (uint64_t)device,
               (uint64_t)reply->body.stream.current, (uint64_t)reply->body.stream.max);
    }
}

bool ga_admit_object(struct ga_root *root, enum ga_object what, uint32_t device, uint32_t flags,
                     uint16_t *tag) {
    struct ga_reply reply;
    if (what == GA_OBJECT_STREAM && count_streams(root, device, 1, ga_self.number, tag))
        return true;
    enum ga_way way = acquire_object(root, what, device, flags, &reply, tag);
    // Without a daemon there is no limit on objects, because they are not device memory.
    if (is_granted(way, &reply) || flags & GA_FLAG_NOTICED)
        return true;
    if (way == GA_WAY_ASK)
        report_no_object(root, what, device, &reply);
    return false;
}

void ga_admit_return(struct ga_root *root, enum ga_object what, uint32_t device, int32_t count,
                     uint32_t maker, uint16_t tag) {
    if (what != GA_OBJECT_STREAM || !count_streams(root, device, -count, maker, &tag))
        ga_session_release(root, what, device, count, maker, tag);
}
