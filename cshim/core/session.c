// SPDX-License-Identifier: Apache-2.0
// Requests of a session: the policy without a daemon, the opening of leases, and the sending of
// requests with repeats. session.h has the interface, call.c the state of one request; admit.c is
// the main caller.
#include "core/session.h"

#include <errno.h>

#include "core/call.h"
#include "core/connection.h"
#include "core/interface.h"
#include "core/link.h"
#include "core/log.h"
#include "core/objects.h"
#include "core/publish.h"
#include "core/release.h"
#include "core/wait.h"

#define LOSS_MS 2000  // how long a lost daemon is looked for before the policy applies
#define RETRY_MS 1000 // interval of the attempts after that
#define REOPEN_MS 100 // interval of the attempts by threads that free memory

// Returns an error that may explain why a running daemon was not reached, for a message; "": none.
static const char *connect_obstacle(struct ga_root *root) {
    switch (atomic_load(&root->connect_error)) {
    case 0:
        return "";
    case -EMFILE:
    case -ENFILE:
        return " (no descriptor is free)";
    default:
        return " (permission denied)";
    }
}

static enum ga_way policy(struct ga_root *root) {
    if (atomic_load(&root->hello_refused) || atomic_load(&root->busy))
        return GA_WAY_REFUSED;
    bool closed = atomic_load(&root->on_loss) == GA_LOSS_CLOSED;
    if (atomic_exchange(&root->warned, 1) == 0) {
        const char *also = root->env.socket[1][0] ? " or " : "";
        const char *what = closed ? "device memory is refused until one answers"
                                  : "running without any GPU memory limit";
        if (ga_link_is_silent(root))
            ga_log_user("the daemon does not answer: %s", what);
        else
            ga_log_user("no daemon at %s%s%s%s: %s", root->env.socket[0], also, root->env.socket[1],
                        connect_obstacle(root), what);
    }
    return closed ? GA_WAY_CLOSED : GA_WAY_OPEN;
}

static void release_dead_threads(struct ga_root *root);

#define DEAD_THREADS_EVERY 10

// Called periodically by a thread that waits for the daemon (ga_wait_tick). Gives back frees of
// this process that have executed, and unused memory of its pools. No other process can do that,
// and the thread may be waiting for these bytes. Every tenth call also looks for dead threads.
static void tick(struct ga_root *root, uint32_t ticks) {
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        ga_interface_reap(root, d, UINT64_MAX);
    if (ticks % DEAD_THREADS_EVERY == 0)
        release_dead_threads(root);
}

// Tries to open the link until it is open or the time is up. Pauses grow from 1 to 50 ms.
static bool find_daemon(struct ga_root *root) {
    uint64_t step_us = 1000;
    for (;;) {
        if (ga_link_open(root, tick))
            return true;
        uint64_t now = ga_os_now_ms();
        bool again =
            atomic_load(&root->busy)
                ? ga_link_is_asked_again(root, now) // the daemon had no room for the process
                : atomic_load(&root->link) == GA_LINK_LOST &&
                      now + step_us / 1000 < root->lost_at_ms + LOSS_MS;
        if (!again || atomic_load(&root->hello_refused) || ga_link_is_silent(root))
            return false;
        ga_os_sleep_us(step_us);
        if (step_us < 50000)
            step_us *= 2;
    }
}

static bool is_over(struct ga_root *root) {
    struct ga_view *view = atomic_load(&root->view);
    return view && atomic_load((_Atomic uint32_t *)&view->page->ended) != 0;
}

// Marks the link as lost. The caller holds root->linking.
static void lose(struct ga_root *root) {
    atomic_store(&root->link, GA_LINK_LOST);
    atomic_store(&root->retry_at_ms, 0);
    root->lost_at_ms = ga_os_now_ms();
}

// Refuses because a limit in the environment is malformed: it must not mean "no limit".
static enum ga_way refuse_malformed(struct ga_root *root) {
    if (atomic_exchange(&root->warned, 1) == 0)
        ga_log_user("%s=%s is no %s: device memory is refused", root->env.malformed,
                    root->env.malformed_value, root->env.malformed_kind);
    return GA_WAY_REFUSED;
}

static GA_NOINLINE enum ga_way ensure_slow(struct ga_root *root) {
    if (GA_UNLIKELY(root->env.malformed != NULL))
        return refuse_malformed(root);
    if (atomic_load(&root->link) != GA_LINK_LIVE &&
        ga_os_coarse_ms() < atomic_load(&root->retry_at_ms))
        return policy(root);
    ga_link_lock(root);
    if (atomic_load(&root->link) == GA_LINK_LIVE && is_over(root))
        lose(root);
    if (atomic_load(&root->link) == GA_LINK_NONE && root->env.in_job)
        lose(root); // a daemon has opened this process's job: it is worth LOSS_MS of attempts
    bool live = atomic_load(&root->link) == GA_LINK_LIVE;
    if (!live && ga_os_coarse_ms() >= atomic_load(&root->retry_at_ms)) {
        uint64_t began = ga_os_now_ms();
        live = find_daemon(root);
        if (!live) {
            // If attempts fail slowly, the pause is four times as long, so that the program spends
            // at most a fifth of its time on them. With a silent daemon they fail at once.
            uint64_t now = ga_os_now_ms();
            bool slow = 4 * (now - began) > RETRY_MS && root->lost_at_ms + LOSS_MS < began;
            uint64_t pause = slow && !ga_link_is_silent(root) ? 4 * (now - began) : RETRY_MS;
            // A daemon that refused may grant the next time.
            bool soon = atomic_load(&root->hello_refused) || atomic_load(&root->busy);
            atomic_store(&root->retry_at_ms, soon ? 0 : now + pause);
        }
    }
    // Applies the policy before it unlocks: another thread that tries again resets what it reads.
    enum ga_way way = live ? GA_WAY_ASK : policy(root);
    ga_link_unlock(root);
    return way;
}

enum ga_way ga_session_ensure(struct ga_root *root) {
    if (GA_LIKELY(atomic_load(&root->link) == GA_LINK_LIVE && !is_over(root)))
        return GA_WAY_ASK;
    return ensure_slow(root);
}

// Marks the link as lost, because a connection of this epoch broke. Does nothing if another thread
// has opened a new link since. hung: the daemon runs but does not answer, so the policy applies at
// once.
static void report_lost(struct ga_root *root, uint32_t epoch, bool hung) {
    ga_link_lock(root);
    if (atomic_load(&root->link) == GA_LINK_LIVE && atomic_load(&root->link_epoch) == epoch) {
        lose(root);
        if (hung)
            ga_link_note_silence(root);
    }
    ga_link_unlock(root);
}

static bool some_connection_lives(struct ga_root *root) {
    uint32_t epoch = atomic_load(&root->link_epoch);
    for (size_t i = 0; i < GA_CONNECTIONS; i++) {
        int fd = atomic_load(&root->connections[i].fd_plus_1) - 1;
        if (fd >= 0 && atomic_load(&root->connections[i].epoch) == epoch && !ga_os_hung_up(fd))
            return true;
    }
    return false;
}

// Opens a connection: gives it the descriptor that the link was opened on, or a
// new one. Returns the descriptor. −EAGAIN: the daemon has no room for another connection now.
// −EBUSY: the process can no longer connect, because it has changed its root directory or user, has
// a filter of system calls, or has no more descriptors; the requests must do with the other
// connections.
static int open_connection(struct ga_root *root, struct ga_connection *connection) {
    ga_link_lock(root);
    int fd = -1;
    if (atomic_load(&root->link) == GA_LINK_LIVE) {
        fd = ga_connection_fd(root, &root->spare);
        if (fd >= 0)
            ga_connection_move(connection, &root->spare);
        else
            fd = ga_link_join(root, connection);
        if (fd == -EBUSY && some_connection_lives(root))
            atomic_store(&root->connect_blocked, 1);
        else if (fd < 0 && fd != -EAGAIN)
            lose(root);
        if (fd >= 0)
            atomic_store(&root->connect_blocked, 0);
    }
    ga_link_unlock(root);
    return fd;
}

// Tells the user that the daemon does not know a device, so that the device's memory is refused.
// The daemon has written the text, and sends it once for each job.
static void report_unknown(struct ga_root *root, const struct ga_reply *reply) {
    if (reply->header.status == GA_STATUS_NO_DEVICE &&
        atomic_load(&root->on_loss) == GA_LOSS_CLOSED &&
        ga_message_fits(reply, sizeof reply->body.error) && reply->body.error.text[0])
        ga_log_user("%t", (const char *)reply->body.error.text);
}

enum ga_way ga_session_attach(struct ga_root *root, uint32_t device) {
    struct ga_device *d = &root->devices[device];
    for (;;) {
        enum ga_way way = ga_session_ensure(root);
        if (way != GA_WAY_ASK)
            return way;
        struct ga_view *view = atomic_load(&root->view);
        if (GA_LIKELY(atomic_load(&view->slot[device]) != 0))
            return GA_WAY_ASK;
        ga_self_enter_mutex();
        // The mutex only saves requests, so the wait is bounded: if two threads open the lease,
        // both get the same lease.
        bool turn = ga_mutex_lock(&d->attaching, GA_REPLY_MS);
        view = atomic_load(&root->view);
        uint32_t epoch = atomic_load(&root->link_epoch);
        if (atomic_load(&view->slot[device]) == 0 && atomic_load(&d->refused) != epoch + 1) {
            struct ga_wire_attach_request attach;
            struct ga_reply reply = {.request = 0};
            ga_os_copy(attach.device, d->uuid, sizeof attach.device);
            way = ga_session_ask(root, GA_TYPE_ATTACH, -1, &attach, sizeof attach, &reply);
            bool ok = way == GA_WAY_ASK && reply.header.status == GA_STATUS_OK &&
                      ga_message_fits(&reply, sizeof reply.body.attach) &&
                      reply.body.attach.slot < GA_PAGE_SLOTS;
            view = atomic_load(&root->view);
            if (ok)
                atomic_store(&root->slot_scope[device], reply.body.attach.slot_scope);
            if (ok && view->tag == reply.tag) {
                atomic_store(&view->slot[device], (uint8_t)(reply.body.attach.slot + 1));
                ga_publish(root);
                atomic_store(&d->refused, 0);
            } else if (way == GA_WAY_ASK && !ok) {
                ga_log("device %u: the daemon opens no lease (status %u)", (uint64_t)device,
                       (uint64_t)reply.header.status);
                report_unknown(root, &reply);
                // The daemon has no room for the lease now. It may have room for the next request.
                if (reply.header.status == GA_STATUS_TOO_MANY)
                    way = GA_WAY_REFUSED;
                else
                    atomic_store(&d->refused, atomic_load(&root->link_epoch) + 1);
            }
        }
        if (turn)
            ga_mutex_unlock(&d->attaching);
        ga_self_leave_mutex();
        if (way != GA_WAY_ASK)
            return way;
        // For a device that the daemon does not know, the policy without a daemon applies.
        if (atomic_load(&d->refused) == atomic_load(&root->link_epoch) + 1)
            return atomic_load(&root->on_loss) == GA_LOSS_CLOSED ? GA_WAY_CLOSED : GA_WAY_OPEN;
    }
}

// Asks whether the daemon knows a device. It sends a Query, not an Attach, because the daemon takes
// an Attach to an unknown device for use that it cannot limit, and tells the user so.
static void ask_whether_known(struct ga_root *root, uint32_t device) {
    struct ga_device *d = &root->devices[device];
    struct ga_wire_query_request query;
    struct ga_reply reply = {.request = 0};
    uint32_t epoch = atomic_load(&root->link_epoch);
    ga_os_copy(query.device, d->uuid, sizeof query.device);
    ga_self_enter_mutex();
    if (ga_session_ask(root, GA_TYPE_QUERY, -1, &query, sizeof query, &reply) == GA_WAY_ASK &&
        reply.header.status == GA_STATUS_NO_DEVICE)
        atomic_store(&d->refused, epoch + 1);
    ga_self_leave_mutex();
}

bool ga_session_lacks(struct ga_root *root, uint32_t device) {
    struct ga_device *d = &root->devices[device];
    if (ga_session_ensure(root) != GA_WAY_ASK)
        return false;
    struct ga_view *view = atomic_load(&root->view);
    if (atomic_load(&view->slot[device]) == 0 &&
        atomic_load(&d->refused) != atomic_load(&root->link_epoch) + 1)
        ask_whether_known(root, device);
    if (atomic_load(&d->refused) != atomic_load(&root->link_epoch) + 1)
        ga_session_attach(root, device);
    return atomic_load(&d->refused) == atomic_load(&root->link_epoch) + 1;
}

enum outcome { ANSWERED, AGAIN, HUNG };

// Sends the request once, on a connection that the caller has, and waits for the reply. Returns 0
// or −errno.
static int exchange(struct ga_root *root, struct ga_connection *connection, struct ga_call *a) {
    struct ga_reply *reply = a->reply;
    reply->epoch = atomic_load(&connection->epoch);
    ga_call_address(root, a);
    if (a->flags)
        *a->flags = ga_call_flags(root, a);
    a->asked_in = reply->tag;
    struct ga_request request = {a->type, reply->request, a->body, a->size, -1, a->until_ms};
    return ga_wait_exchange(root, connection, &request, reply, tick);
}

static enum outcome attempt_on(struct ga_root *root, struct ga_connection *connection,
                               struct ga_call *a) {
    int fd = ga_connection_fd(root, connection);
    if (GA_UNLIKELY(fd < 0))
        fd = open_connection(root, connection);
    if (GA_UNLIKELY(fd < 0)) {
        ga_connection_release(root, connection);
        ga_call_count_failure(a, fd);
        return AGAIN;
    }
    if (GA_UNLIKELY(ga_call_is_reported(root, connection, a))) {
        ga_connection_release(root, connection);
        return ANSWERED;
    }
    uint64_t began = a->quick_failures ? ga_os_now_ms() : 0;
    int error = exchange(root, connection, a);
    if (GA_LIKELY(error == 0 && ga_call_is_final(a->reply))) {
        ga_connection_release(root, connection);
        if (GA_UNLIKELY(a->reply->fd >= 0))
            ga_os_close(a->reply->fd);
        return ANSWERED;
    }
    ga_connection_set(connection, -1);
    ga_connection_release(root, connection);
    if (error == -ETIMEDOUT) {
        ga_log("the daemon does not answer");
        report_lost(root, a->reply->epoch, true);
        return HUNG;
    }
    report_lost(root, a->reply->epoch, false);
    a->quick_failures = began && ga_os_now_ms() - began > 1000 ? 1 : a->quick_failures + 1;
    return AGAIN;
}

static enum outcome attempt(struct ga_root *root, struct ga_call *a) {
    if (a->waits && ga_threads_publish(root))
        release_dead_threads(root);
    // Requests wait on all connections but a few (ga_connection_acquire_to_wait), so that there is
    // a connection for requests that are answered at once. If no more connections can be opened,
    // no request may wait on one.
    struct ga_connection *connection = NULL;
    if (a->waits && GA_LIKELY(!atomic_load(&root->connect_blocked)))
        connection = ga_connection_acquire_to_wait(root);
    a->aside = a->waits && !connection;
    return attempt_on(root, connection ? connection : ga_connection_acquire(root), a);
}

static enum ga_way send_until_answered(struct ga_root *root, struct ga_call *a) {
    if (a->reply->request == 0)
        a->reply->request = atomic_fetch_add(&root->next_request, 1) + 1;
    for (a->quick_failures = 0; a->quick_failures < 6;) {
        enum ga_way way =
            a->device < 0 ? ga_session_ensure(root) : ga_session_attach(root, (uint32_t)a->device);
        if (way != GA_WAY_ASK)
            return way;
        switch (attempt(root, a)) {
        case ANSWERED:
            return GA_WAY_ASK;
        case HUNG:
            return policy(root);
        case AGAIN:
            break;
        }
    }
    ga_log("the daemon ends every connection");
    return policy(root);
}

// Pauses, and prepares another attempt of a request that found no place in the queue. False: the
// request's time is over, and the reply is set to "timed out". asked: number of attempts.
static GA_NOINLINE bool ask_later(struct ga_root *root, struct ga_call *a, uint32_t asked) {
    uint64_t now = ga_os_now_ms();
    if (a->first_ms == 0)
        a->first_ms = now;
    if (a->reply->header.status == GA_STATUS_CROWDED) {
        const uint8_t *text;
        uint64_t patience = ga_call_read_crowded(a, &text);
        a->until_ms = patience < UINT64_MAX - a->first_ms ? a->first_ms + patience : 0;
        if (text[0] && asked == 1 &&
            atomic_exchange(root->env.in_job ? &root->crowded_reported : &root->wait_reported, 1) ==
                0)
            ga_log_user("%t", text);
    }
    if (a->until_ms != 0 && now >= a->until_ms) {
        ga_os_zero(&a->reply->body, sizeof a->reply->body);
        a->reply->header.status = GA_STATUS_TIMEOUT;
        ga_log_user("a request has waited for %u ms, as long as it may: the queue was full when it "
                    "came",
                    now - a->first_ms);
        return false;
    }
    ga_os_sleep_us(GA_CROWDED_MILLIS * 1000);
    tick(root, asked);
    a->reply->request = 0;
    a->asked_in = 0;
    return true;
}

enum ga_way ga_session_ask(struct ga_root *root, uint16_t type, int device, void *body, size_t size,
                           struct ga_reply *reply) {
    struct ga_call a = {.type = type,
                        .device = device,
                        .body = body,
                        .size = size,
                        .reply = reply,
                        .asked_in = reply->request != 0 ? reply->tag : 0};
    ga_call_classify(&a);
    enum ga_way way;
    uint32_t asked = 0;
    do {
        way = send_until_answered(root, &a);
    } while (GA_UNLIKELY(a.waits && way == GA_WAY_ASK && ga_call_is_crowded(&a)) &&
             (ga_call_look(root, &a) || ask_later(root, &a, ++asked)));
    if (type != GA_TYPE_QUERY && type != GA_TYPE_ROOM)
        atomic_fetch_add(&root->asked,
                         1); // free memory may have changed: cached readings are stale
    return way;
}

// Tells the daemon that objects were destroyed, after this process has stopped counting them.
// epoch: the link at that time. When a later link was opened, a daemon that takes the counts
// (GA_ABLE_OBJECTS) was told them without these objects, so that daemon is sent nothing.
static void send_release(struct ga_root *root, uint16_t type, uint32_t device, void *body,
                         size_t size, uint32_t epoch) {
    struct ga_reply reply = {.request = 0};
    struct ga_call a = {.type = type,
                        .device = (int)device,
                        .body = body,
                        .size = size,
                        .reply = &reply,
                        .releases = true,
                        .released_in = epoch};
    ga_call_classify(&a);
    send_until_answered(root, &a);
    atomic_fetch_add(&root->asked, 1); // free memory may have changed
}

void ga_session_release(struct ga_root *root, enum ga_object what, uint32_t device, int32_t count,
                        uint32_t maker, uint16_t tag) {
    struct ga_wire_context_request request = ga_objects_request(what, -count, 0, maker);
    ga_move_begin(root);
    bool ours = tag == atomic_load(&root->tag); // false: the session has ended
    uint32_t epoch = atomic_load(&root->link_epoch);
    if (ours)
        ga_objects_add(root, what, device, maker, -count);
    ga_move_end();
    if (ours)
        send_release(root, ga_objects_type(what), device, &request, sizeof request, epoch);
}

bool ga_session_release_thread_slot(struct ga_root *root, uint64_t key, uint64_t retains) {
    struct ga_entry e;
    struct ga_entry old;
    ga_self_lock(&root->thread_slots_lock);
    bool found = ga_table_remove(&root->thread_slots, key, &e);
    bool had = found && (retains ? e.context : e.bytes) != 0;
    if (had && retains)
        e.context -= ga_os_least(e.context, retains);
    else if (had)
        e.bytes = 0;
    bool over = had && e.bytes == 0 && e.context == 0;
    if (found && !over)
        ga_table_put(&root->thread_slots, &e, &old);
    ga_self_unlock(&root->thread_slots_lock);
    if (over && e.kind)
        ga_session_release(root, GA_OBJECT_THREAD_SLOT, e.device, 1, (uint32_t)(e.key >> 8), e.tag);
    return had;
}

// Entries are copied in batches, because system calls must not be made under the table's locks.
#define BATCH 32

// Ends the uses of threads that are dead. Entries that move in the table meanwhile may be missed;
// they are found by a later call.
static void end_dead_uses(struct ga_root *root) {
    struct ga_entry e, batch[BATCH];
    int pid = ga_os_pid();
    uint32_t count;
    uint32_t living = 0;
    do {
        uint32_t skip = living;
        count = 0;
        struct ga_walk walk = ga_self_walk(&root->thread_slots);
        while (ga_self_next(&walk, &e)) {
            if (e.bytes == 0 || count == BATCH)
                continue;
            if (skip > 0)
                skip--;
            else
                batch[count++] = e;
        }
        for (uint32_t i = 0; i < count; i++) {
            if (ga_os_thread_lives(pid, (int)batch[i].bytes))
                living++;
            else
                ga_session_release_thread_slot(root, batch[i].key, 0);
        }
    } while (count == BATCH);
}

// Gives back the slots of dead threads, and publishes the counts without these threads.
static void release_dead_threads(struct ga_root *root) {
    // A thread that opens a session would wait for itself, because a request needs a session.
    if (ga_mutex_is_mine(&root->linking))
        return;
    ga_publish(root); // removes calls of dead threads from the page
    end_dead_uses(root);
}

// Tries once to open the link again, so that a restarted daemon learns what this process uses. At
// most one thread does so every REOPEN_MS.
static void reopen_link(struct ga_root *root) {
    if (atomic_load(&root->link) != GA_LINK_LOST ||
        ga_os_coarse_ms() < atomic_load(&root->reopen_at_ms) || !ga_link_try_lock(root))
        return;
    if (atomic_load(&root->link) == GA_LINK_LOST && !ga_link_open(root, tick))
        atomic_store(&root->reopen_at_ms, ga_os_now_ms() + REOPEN_MS);
    ga_link_unlock(root);
}

// If the send buffer of the connection is full, the notice is dropped: the daemon has notices to
// read, and reads the credit word after that. If NOTIFY is still set, the next free sends a notice
// as well.
GA_NOINLINE void ga_session_freed(struct ga_root *root, uint32_t slot) {
    struct ga_wire_freed_notice notice = {.slot = slot};
    uint32_t epoch = atomic_load(&root->link_epoch);
    if (atomic_load(&root->link) != GA_LINK_LIVE) {
        reopen_link(root);
        return;
    }
    uint64_t request = atomic_fetch_add(&root->next_request, 1) + 1;
    struct ga_connection *connection = ga_connection_acquire(root);
    int fd = ga_connection_fd(root, connection);
    if (fd < 0)
        fd = open_connection(root, connection);
    // A full buffer can only contain notices: all other messages are followed by a wait for the
    // reply.
    int error =
        fd < 0 ? fd : ga_message_send(fd, GA_TYPE_FREED, request, &notice, sizeof notice, -1, 0);
    bool broken = error != 0 && error != -EAGAIN && error != -EBUSY;
    if (broken)
        ga_connection_set(connection, -1);
    ga_connection_release(root, connection);
    if (broken) {
        report_lost(root, epoch, false);
        reopen_link(root);
    }
}
