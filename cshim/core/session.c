// SPDX-License-Identifier: Apache-2.0
#include "core/session.h"

#include <errno.h>

#include "core/give.h"
#include "core/interface.h"
#include "core/lane.h"
#include "core/link.h"
#include "core/log.h"
#include "core/objects.h"
#include "core/tell.h"
#include "core/wait.h"

#define LOSS_MS 2000  // how long a lost daemon is looked for before the policy applies
#define RETRY_MS 1000 // and how often afterwards
#define MEND_MS 100
#define ROOM_MS 5000 // how long a connection that there is no room for is tried for

// Why there may be a daemon all the same.
static const char *bar(struct ga_root *root) {
    switch (atomic_load(&root->barred)) {
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
                        bar(root), what);
    }
    return closed ? GA_WAY_CLOSED : GA_WAY_OPEN;
}

static void bury(struct ga_root *root);

#define BURY_EVERY 10

// What a thread does that waits. Bytes of its process that have come back nobody else can find, and
// they may be what it waits for; so may be what its pools keep.
static void look(struct ga_root *root, uint32_t looks) {
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        ga_interface_reap(root, d, UINT64_MAX);
    if (looks % BURY_EVERY == 0)
        bury(root);
}

// Tries until it works or the time is up; the steps grow from 1 ms.
static bool look_for_daemon(struct ga_root *root) {
    uint64_t step_us = 1000;
    for (;;) {
        if (ga_link_open(root, look))
            return true;
        uint64_t now = ga_os_now_ms();
        bool again = atomic_load(&root->busy)
                         ? ga_link_is_asked_again(root, now) // the last time it is told so
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

// The caller holds root->linking.
static void lose(struct ga_root *root) {
    atomic_store(&root->link, GA_LINK_LOST);
    atomic_store(&root->retry_at_ms, 0);
    root->lost_at_ms = ga_os_now_ms();
}

// A limit that cannot be read is not "no limit".
static enum ga_way refuse_wrong(struct ga_root *root) {
    if (atomic_exchange(&root->warned, 1) == 0)
        ga_log_user("%s=%s is no %s: device memory is refused", root->env.wrong,
                    root->env.wrong_value, root->env.wrong_what);
    return GA_WAY_REFUSED;
}

static GA_NOINLINE enum ga_way ensure_slow(struct ga_root *root) {
    if (GA_UNLIKELY(root->env.wrong != NULL))
        return refuse_wrong(root);
    if (atomic_load(&root->link) != GA_LINK_LIVE &&
        ga_os_coarse_ms() < atomic_load(&root->retry_at_ms))
        return policy(root);
    ga_link_lock(root);
    if (atomic_load(&root->link) == GA_LINK_LIVE && is_over(root))
        lose(root);
    if (atomic_load(&root->link) == GA_LINK_NONE && root->env.in_job)
        lose(root); // there was a daemon just now: it opened the job
    bool live = atomic_load(&root->link) == GA_LINK_LIVE;
    if (!live && ga_os_coarse_ms() >= atomic_load(&root->retry_at_ms)) {
        uint64_t began = ga_os_now_ms();
        live = look_for_daemon(root);
        if (!live) {
            // If attempts fail slowly, the pause is four times as long, so that the program spends
            // at most a fifth of its time on them. With a silent daemon they fail at once.
            uint64_t now = ga_os_now_ms();
            bool slow = 4 * (now - began) > RETRY_MS && root->lost_at_ms + LOSS_MS < began;
            uint64_t pause = slow && !ga_link_is_silent(root) ? 4 * (now - began) : RETRY_MS;
            // What was refused may be had the next time.
            bool soon = atomic_load(&root->hello_refused) || atomic_load(&root->busy);
            atomic_store(&root->retry_at_ms, soon ? 0 : now + pause);
        }
    }
    // Before another thread tries again: meanwhile nothing is known.
    enum ga_way way = live ? GA_WAY_ASK : policy(root);
    ga_link_unlock(root);
    return way;
}

enum ga_way ga_session_ensure(struct ga_root *root) {
    if (GA_LIKELY(atomic_load(&root->link) == GA_LINK_LIVE && !is_over(root)))
        return GA_WAY_ASK;
    return ensure_slow(root);
}

// Marks the link as lost, because a connection of this epoch broke, unless another thread has
// opened a new link since. hung: the daemon is there and does not answer, so that the policy
// applies at once.
static void report_lost(struct ga_root *root, uint32_t epoch, bool hung) {
    ga_link_lock(root);
    if (atomic_load(&root->link) == GA_LINK_LIVE && atomic_load(&root->link_epoch) == epoch) {
        lose(root);
        if (hung)
            ga_link_note_silence(root);
    }
    ga_link_unlock(root);
}

static bool some_lane_lives(struct ga_root *root) {
    uint32_t epoch = atomic_load(&root->link_epoch);
    for (size_t i = 0; i < GA_LANES; i++) {
        int fd = atomic_load(&root->lanes[i].fd_plus_1) - 1;
        if (fd >= 0 && atomic_load(&root->lanes[i].epoch) == epoch && !ga_os_hung_up(fd))
            return true;
    }
    return false;
}

// A descriptor for a lane that has none: the one that the link was opened on, or a new one.
// −EAGAIN: there is no room for one more now. −EBUSY: the process has come where it cannot connect
// (another root or user, a filter of system calls, no more descriptors); the others must do.
static int connect_lane(struct ga_root *root, struct ga_lane *lane) {
    ga_link_lock(root);
    int fd = -1;
    if (atomic_load(&root->link) == GA_LINK_LIVE) {
        fd = ga_lane_fd(root, &root->spare);
        if (fd >= 0)
            ga_lane_move(lane, &root->spare);
        else
            fd = ga_link_join(root, lane);
        if (fd == -EBUSY && some_lane_lives(root))
            atomic_store(&root->walled, 1);
        else if (fd < 0 && fd != -EAGAIN)
            lose(root);
        if (fd >= 0)
            atomic_store(&root->walled, 0);
    }
    ga_link_unlock(root);
    return fd;
}

// Tells the user that the daemon does not know a device, whose memory is refused under gpuarb run.
// The text is the daemon's, which sends it once for each job.
static void tell_unknown(struct ga_root *root, const struct ga_reply *reply) {
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
        ga_self_go_away();
        // Not for ever. It saves requests, no more: a lease that two open is one.
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
                ga_tell(root);
                atomic_store(&d->refused, 0);
            } else if (way == GA_WAY_ASK && !ok) {
                ga_log("device %u: the daemon opens no lease (status %u)", (uint64_t)device,
                       (uint64_t)reply.header.status);
                tell_unknown(root, &reply);
                // It may have room the next time, and nothing is to be had till then.
                if (reply.header.status == GA_STATUS_TOO_MANY)
                    way = GA_WAY_REFUSED;
                else
                    atomic_store(&d->refused, atomic_load(&root->link_epoch) + 1);
            }
        }
        if (turn)
            ga_mutex_unlock(&d->attaching);
        ga_self_come_back();
        if (way != GA_WAY_ASK)
            return way;
        // A device that the daemon does not arbitrate is as good as no daemon.
        if (atomic_load(&d->refused) == atomic_load(&root->link_epoch) + 1)
            return atomic_load(&root->on_loss) == GA_LOSS_CLOSED ? GA_WAY_CLOSED : GA_WAY_OPEN;
    }
}

// Asks whether the daemon knows a device. A query does, because it opens no lease: the daemon takes
// an Attach to an unknown device as use that it cannot limit, and tells the user so.
static void ask_whether_known(struct ga_root *root, uint32_t device) {
    struct ga_device *d = &root->devices[device];
    struct ga_wire_query_request query;
    struct ga_reply reply = {.request = 0};
    uint32_t epoch = atomic_load(&root->link_epoch);
    ga_os_copy(query.device, d->uuid, sizeof query.device);
    ga_self_go_away();
    if (ga_session_ask(root, GA_TYPE_QUERY, -1, &query, sizeof query, &reply) == GA_WAY_ASK &&
        reply.header.status == GA_STATUS_NO_DEVICE)
        atomic_store(&d->refused, epoch + 1);
    ga_self_come_back();
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

static bool is_final(const struct ga_reply *reply) {
    return reply->header.status != GA_STATUS_SHUTTING_DOWN &&
           reply->header.status != GA_STATUS_NO_SESSION;
}

// A request on its way, over as many attempts as it takes.
struct asking {
    uint16_t type;
    int device;
    void *body;
    size_t size;
    struct ga_reply *reply;
    uint32_t *flags;   // in the body, of what asks for something or gives it back, or NULL
    bool waits;        // the daemon may let it wait
    bool aside;        // but not on this connection, because there was none left to wait on
    uint64_t first_ms; // when it was sent first, if it has found no place in the queue
    uint64_t until_ms; // until when it may wait then; 0: without end
    uint32_t asked_in; // the session that may have seen it
    bool gives;        // something back that is counted no more since given_in, a link
    uint32_t given_in;
    int quick_failures;
    uint64_t no_room_since;
};

// What its body says of it.
static void look_into(struct asking *a) {
    struct ga_wire_alloc_request *bytes = a->body;
    struct ga_wire_context_request *object = a->body; // a stream's is laid out alike
    bool takes = false;
    if (a->type == GA_TYPE_ALLOC) {
        a->flags = &bytes->flags;
        takes = true;
    } else if (a->type == GA_TYPE_STREAM || a->type == GA_TYPE_CONTEXT) {
        a->flags = &object->flags;
        takes = object->count > 0;
    }
    a->waits = takes && !(*a->flags & (GA_FLAG_NO_WAIT | GA_FLAG_NOTICED));
}

enum outcome { ANSWERED, AGAIN, HUNG };

// There is no connection to be had: at once that of a daemon that is gone, or, for a while, one
// more than there may be.
static void count_failure(struct asking *a, int error) {
    uint64_t now = ga_os_now_ms();
    a->no_room_since = a->no_room_since ? a->no_room_since : now;
    if (error != -EBUSY && (error != -EAGAIN || now - a->no_room_since > ROOM_MS))
        a->quick_failures++;
    else
        ga_os_sleep_us(20000);
}

// Writes the slot of the device into the body, and which session that is.
static void address(struct ga_root *root, struct asking *a) {
    struct ga_view *view = atomic_load(&root->view);
    a->reply->tag = view->tag;
    if (a->device < 0)
        return;
    uint32_t slot = (uint32_t)atomic_load(&view->slot[a->device]) - 1;
    ga_os_copy(a->body, &slot, sizeof slot);
}

// Returns the flags of an attempt. An earlier daemon does not know GA_FLAG_ASIDE, and refuses what
// would wait, and says no time-out.
static uint32_t flags_of(struct ga_root *root, const struct asking *a) {
    uint32_t flags = *a->flags & ~GA_FLAG_RETRY;
    bool able = atomic_load(&root->able) & GA_ABLE_ASIDE;
    if (a->waits)
        flags &= ~(GA_FLAG_ASIDE | GA_FLAG_AGAIN | GA_FLAG_NO_WAIT);
    if (a->aside)
        flags |= able ? GA_FLAG_ASIDE : GA_FLAG_NO_WAIT;
    if (a->first_ms != 0 && able)
        flags |= GA_FLAG_AGAIN;
    return flags | (a->asked_in == a->reply->tag ? GA_FLAG_RETRY : 0);
}

// One attempt on a lane that is the caller's.
static int exchange(struct ga_root *root, struct ga_lane *lane, struct asking *a) {
    struct ga_reply *reply = a->reply;
    reply->epoch = atomic_load(&lane->epoch);
    address(root, a);
    if (a->flags)
        *a->flags = flags_of(root, a);
    a->asked_in = reply->tag;
    struct ga_request request = {a->type, reply->request, a->body, a->size, -1, a->until_ms};
    return ga_wait_exchange(root, lane, &request, reply, look);
}

// The daemon of another link has been told what there is without it.
static bool is_settled(struct ga_root *root, const struct ga_lane *lane, const struct asking *a) {
    return a->gives && atomic_load(&lane->epoch) != a->given_in &&
           (atomic_load(&root->able) & GA_ABLE_OBJECTS);
}

static enum outcome attempt_on(struct ga_root *root, struct ga_lane *lane, struct asking *a) {
    int fd = ga_lane_fd(root, lane);
    if (GA_UNLIKELY(fd < 0))
        fd = connect_lane(root, lane);
    if (GA_UNLIKELY(fd < 0)) {
        ga_lane_give(root, lane);
        count_failure(a, fd);
        return AGAIN;
    }
    if (GA_UNLIKELY(is_settled(root, lane, a))) {
        ga_lane_give(root, lane);
        return ANSWERED;
    }
    uint64_t began = a->quick_failures ? ga_os_now_ms() : 0;
    int error = exchange(root, lane, a);
    if (GA_LIKELY(error == 0 && is_final(a->reply))) {
        ga_lane_give(root, lane);
        if (GA_UNLIKELY(a->reply->fd >= 0))
            ga_os_close(a->reply->fd);
        return ANSWERED;
    }
    ga_lane_set(lane, -1);
    ga_lane_give(root, lane);
    if (error == -ETIMEDOUT) {
        ga_log("the daemon does not answer");
        report_lost(root, a->reply->epoch, true);
        return HUNG;
    }
    report_lost(root, a->reply->epoch, false);
    a->quick_failures = began && ga_os_now_ms() - began > 1000 ? 1 : a->quick_failures + 1;
    return AGAIN;
}

static enum outcome attempt(struct ga_root *root, struct asking *a) {
    if (a->waits && ga_threads_publish(root))
        bury(root);
    // What may be had at once is not held up by those that wait on all connections but the few that
    // are kept for others. Where no more can be made, none must be waited on.
    struct ga_lane *lane = NULL;
    if (a->waits && GA_LIKELY(!atomic_load(&root->walled)))
        lane = ga_lane_take_to_wait(root);
    a->aside = a->waits && !lane;
    return attempt_on(root, lane ? lane : ga_lane_take(root), a);
}

static enum ga_way insist(struct ga_root *root, struct asking *a) {
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

// The request was in the queue at last, and was given up because its time was over.
static bool is_late(const struct asking *a) {
    return a->reply->header.status == GA_STATUS_CANCELLED && a->until_ms != 0 &&
           ga_os_now_ms() >= a->until_ms;
}

// The request may wait, and there was no place for it in the queue, or not in time.
static bool is_crowded(const struct asking *a) {
    uint32_t status = a->reply->header.status;
    return status == GA_STATUS_CROWDED || (status == GA_STATUS_BUSY && a->aside) || is_late(a);
}

// Reads how long the request may wait, in ms (UINT64_MAX: without end), and the line that says so.
static uint64_t read_crowded(const struct asking *a, const uint8_t **text) {
    const struct ga_reply *reply = a->reply;
    switch (a->type) {
    case GA_TYPE_ALLOC:
        *text = reply->body.alloc.text;
        return reply->body.alloc.limit;
    case GA_TYPE_STREAM:
        *text = reply->body.stream.text;
        return reply->body.stream.max == UINT32_MAX ? UINT64_MAX : reply->body.stream.max;
    default:
        *text = reply->body.context.text;
        return reply->body.context.remaining;
    }
}

// Has a request asked again in a while that found no place in the queue: true. False: it has waited
// as long as it may, which its reply says from now on. asked is how often it was asked.
static GA_NOINLINE bool ask_later(struct ga_root *root, struct asking *a, uint32_t asked) {
    uint64_t now = ga_os_now_ms();
    if (a->first_ms == 0)
        a->first_ms = now;
    if (a->reply->header.status == GA_STATUS_CROWDED) {
        const uint8_t *text;
        uint64_t patience = read_crowded(a, &text);
        a->until_ms = patience < UINT64_MAX - a->first_ms ? a->first_ms + patience : 0;
        if (text[0] && asked == 1 &&
            atomic_exchange(root->env.in_job ? &root->told_crowded : &root->told_wait, 1) == 0)
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
    look(root, asked);
    a->reply->request = 0;
    a->asked_in = 0;
    return true;
}

enum ga_way ga_session_ask(struct ga_root *root, uint16_t type, int device, void *body, size_t size,
                           struct ga_reply *reply) {
    struct asking a = {.type = type,
                       .device = device,
                       .body = body,
                       .size = size,
                       .reply = reply,
                       .asked_in = reply->request != 0 ? reply->tag : 0};
    look_into(&a);
    enum ga_way way;
    uint32_t asked = 0;
    do {
        way = insist(root, &a);
        asked++;
    } while (GA_UNLIKELY(a.waits && way == GA_WAY_ASK && is_crowded(&a)) &&
             ask_later(root, &a, asked));
    if (type != GA_TYPE_QUERY && type != GA_TYPE_ROOM)
        atomic_fetch_add(&root->asked, 1); // it may have changed what is free
    return way;
}

// Tells the daemon of a link (its epoch) what is given back, once it counts no more here: to a
// daemon of later that is no news.
static void give_in(struct ga_root *root, uint16_t type, uint32_t device, void *body, size_t size,
                    uint32_t epoch) {
    struct ga_reply reply = {.request = 0};
    struct asking a = {.type = type,
                       .device = (int)device,
                       .body = body,
                       .size = size,
                       .reply = &reply,
                       .gives = true,
                       .given_in = epoch};
    look_into(&a);
    insist(root, &a);
    atomic_fetch_add(&root->asked, 1); // it may have changed what is free
}

void ga_session_give(struct ga_root *root, enum ga_object what, uint32_t device, int32_t count,
                     uint32_t maker, uint16_t tag) {
    struct ga_wire_context_request request = ga_objects_request(what, -count, 0, maker);
    ga_move_begin(root);
    bool ours = tag == atomic_load(&root->tag); // else the session is over
    uint32_t epoch = atomic_load(&root->link_epoch);
    if (ours)
        ga_objects_add(root, what, device, maker, -count);
    ga_move_end();
    if (ours)
        give_in(root, ga_objects_type(what), device, &request, sizeof request, epoch);
}

bool ga_session_return_hold(struct ga_root *root, uint64_t key, uint64_t retains) {
    struct ga_entry e;
    struct ga_entry old;
    ga_self_lock(&root->holds_lock);
    bool found = ga_table_take(&root->holds, key, &e);
    bool had = found && (retains ? e.context : e.bytes) != 0;
    if (had && retains)
        e.context -= ga_os_least(e.context, retains);
    else if (had)
        e.bytes = 0;
    bool over = had && e.bytes == 0 && e.context == 0;
    if (found && !over)
        ga_table_put(&root->holds, &e, &old);
    ga_self_unlock(&root->holds_lock);
    if (over && e.kind)
        ga_session_give(root, GA_OBJECT_HOLD, e.device, 1, (uint32_t)(e.key >> 8), e.tag);
    return had;
}

// Some of the entries: whether their threads live is not asked under the table's locks.
#define BATCH 32

// What moves in the table meanwhile is found the next time.
static void return_holds(struct ga_root *root) {
    struct ga_entry e, batch[BATCH];
    int pid = ga_os_pid();
    uint32_t count;
    uint32_t living = 0;
    do {
        uint32_t skip = living;
        count = 0;
        struct ga_walk walk = ga_self_walk(&root->holds);
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
                ga_session_return_hold(root, batch[i].key, 0);
        }
    } while (count == BATCH);
}

// Gives back what threads held that have died.
static void bury(struct ga_root *root) {
    // Who is opening a session has none to give back to, and would wait for itself.
    if (ga_mutex_is_mine(&root->linking))
        return;
    ga_tell(root); // without what threads did that have died
    return_holds(root);
}

// A daemon that was restarted hears from us what is in use. One attempt, by one thread.
static void mend(struct ga_root *root) {
    if (atomic_load(&root->link) != GA_LINK_LOST ||
        ga_os_coarse_ms() < atomic_load(&root->mend_at_ms) || !ga_link_try_lock(root))
        return;
    if (atomic_load(&root->link) == GA_LINK_LOST && !ga_link_open(root, look))
        atomic_store(&root->mend_at_ms, ga_os_now_ms() + MEND_MS);
    ga_link_unlock(root);
}

// When no connection takes it their buffers are full of what the daemon has yet to read, and it
// will look at the word then; the next free sees NOTIFY again, too.
GA_NOINLINE void ga_session_freed(struct ga_root *root, uint32_t slot) {
    struct ga_wire_freed_notice notice = {.slot = slot};
    uint32_t epoch = atomic_load(&root->link_epoch);
    if (atomic_load(&root->link) != GA_LINK_LIVE) {
        mend(root);
        return;
    }
    uint64_t request = atomic_fetch_add(&root->next_request, 1) + 1;
    struct ga_lane *lane = ga_lane_take(root);
    int fd = ga_lane_fd(root, lane);
    if (fd < 0)
        fd = connect_lane(root, lane);
    // A buffer that is full is full of notices that are yet to be read: nothing else is sent
    // without waiting for its reply.
    int error =
        fd < 0 ? fd : ga_message_send(fd, GA_TYPE_FREED, request, &notice, sizeof notice, -1, 0);
    bool broken = error != 0 && error != -EAGAIN && error != -EBUSY;
    if (broken)
        ga_lane_set(lane, -1);
    ga_lane_give(root, lane);
    if (broken) {
        report_lost(root, epoch, false);
        mend(root);
    }
}
