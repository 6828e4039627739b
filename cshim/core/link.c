// SPDX-License-Identifier: Apache-2.0
// Opens the link: connects, sends Hello or Resume, and reports the process's objects to the daemon.
// The caller holds root->linking. session.c decides when a link is opened.
#include "core/link.h"

#include <errno.h>

#include "core/connection.h"
#include "core/credit.h"
#include "core/log.h"
#include "core/objects.h"
#include "core/publish.h"
#include "core/streams.h"

// The calling thread cannot hold the lock already: a signal handler that interrupts its holder
// finds no root.
void ga_link_lock(struct ga_root *root) {
    ga_self_enter_mutex();
    ga_mutex_lock(&root->linking, -1);
}

bool ga_link_try_lock(struct ga_root *root) {
    ga_self_enter_mutex();
    if (!ga_mutex_lock(&root->linking, 0)) {
        ga_self_leave_mutex();
        return false;
    }
    return true;
}

void ga_link_unlock(struct ga_root *root) {
    ga_mutex_unlock(&root->linking);
    ga_self_leave_mutex();
}

#define BUSY_MS 30000 // how long a daemon without room for one more program is asked again

// Notes that the daemon is there, but has no room for this process now. The process asks again for
// BUSY_MS and gets nothing meanwhile. The policy for a missing daemon does not apply.
static void note_busy(struct ga_root *root, const char *why) {
    uint64_t now = ga_os_now_ms();
    if (root->busy_since_ms == 0)
        root->busy_since_ms = now;
    bool late = !ga_link_is_asked_again(root, now);
    atomic_store(&root->busy, 1);
    if (why[0] && atomic_exchange(late ? &root->warned : &root->wait_reported, 1) == 0)
        ga_log_user("%t: %s", why, late ? "device memory is refused" : "the program waits");
}

bool ga_link_is_asked_again(const struct ga_root *root, uint64_t now) {
    return now < root->busy_since_ms + BUSY_MS;
}

static bool is_obstacle(int error) {
    return error == -EACCES || error == -EPERM || error == -EMFILE || error == -ENFILE;
}

static int connect_any(struct ga_root *root) {
    int fd = -ENOENT;
    int obstacle = 0;
    for (size_t i = 0; i < 3 && root->env.socket[i][0] && fd < 0; i++) {
        fd = ga_os_connect(root->env.socket[i]);
        if (is_obstacle(fd))
            obstacle = fd;
        if (fd == -EAGAIN) // its backlog is full
            note_busy(root, "the daemon has more programs waiting to connect than it can take in");
    }
    atomic_store(&root->connect_error, fd < 0 ? obstacle : 0);
    return fd;
}

// Opens a connection. It belongs to no link yet, so only the thread that opens it uses it.
static bool open_connection(struct ga_root *root, struct ga_connection *connection) {
    int fd = connect_any(root);
    if (fd >= 0)
        ga_connection_set(connection, fd);
    return fd >= 0;
}

// Returns the text of an error.
static const char *text_of(const struct ga_reply *reply) {
    bool told = ga_message_fits(reply, sizeof reply->body.error);
    return told ? (const char *)reply->body.error.text : "";
}

static uint64_t next_request(struct ga_root *root) {
    return atomic_fetch_add(&root->next_request, 1) + 1;
}

// Returns a test request for a daemon that does not answer. It is sent on a separate connection,
// root->silent. Until that connection has something to read, no thread sends the daemon anything
// else, so no thread waits for it again. An answer, an error or the connection's end shows that a
// daemon can be asked again. The request is a query before Hello, which reserves nothing and
// changes nothing.
static struct ga_request test_request(struct ga_root *root) {
    static const struct ga_wire_query_request query;
    return (struct ga_request){GA_TYPE_QUERY, next_request(root), &query, sizeof query, -1, 0};
}

void ga_link_note_silence(struct ga_root *root) {
    struct ga_request request = test_request(root);
    if (ga_link_is_silent(root) || !open_connection(root, &root->silent))
        return;
    if (ga_message_send(atomic_load(&root->silent.fd_plus_1) - 1, request.type, request.number,
                        request.body, request.size, -1, 0) != 0)
        ga_connection_set(&root->silent, -1);
}

bool ga_link_is_silent(const struct ga_root *root) {
    return atomic_load(&root->silent.fd_plus_1) != 0;
}

// Reports whether a daemon that did not answer is still silent. If it is not, closes the connection
// with the test request.
static bool is_still_silent(struct ga_root *root) {
    int fd = atomic_load(&root->silent.fd_plus_1) - 1;
    if (fd < 0)
        return false;
    if (ga_os_is(fd, &root->silent.id) && ga_os_is_quiet(fd))
        return true;
    ga_connection_set(&root->silent, -1);
    return false;
}

// Sends the test request on root->spare and waits for the answer. False: the daemon did not answer
// in time, and root->spare became root->silent; or it has no room for one more connection; or the
// connection broke.
static bool answers_test(struct ga_root *root) {
    struct ga_reply reply;
    struct ga_request request = test_request(root);
    int error = ga_wait_exchange(root, &root->spare, &request, &reply, NULL);
    if (reply.fd >= 0)
        ga_os_close(reply.fd);
    if (error == -ETIMEDOUT)
        ga_connection_move(&root->silent, &root->spare);
    else if (error == 0 && ga_message_is_turned_away(&reply.header))
        note_busy(root, text_of(&reply));
    else if (error == 0)
        return true;
    return false;
}

// Sends a request on a connection that is being opened, and waits for the reply. False: no reply
// came.
static bool exchange(struct ga_root *root, struct ga_connection *connection, uint16_t type,
                     const void *body, size_t size, int send_fd, struct ga_reply *reply) {
    struct ga_request request = {type, next_request(root), body, size, send_fd, 0};
    int error = ga_wait_exchange(root, connection, &request, reply, NULL);
    if (error == -ETIMEDOUT)
        ga_link_note_silence(root);
    return error == 0;
}

static void log_status(const char *what, const struct ga_reply *reply) {
    ga_log("%s: the daemon answers %u %t", what, (uint64_t)reply->header.status, text_of(reply));
}

// Maps the page that came with a reply. NULL: it is not a lease page of this version.
static struct ga_wire_page *map_page(int fd) {
    if (ga_os_file_size(fd) < GA_PAGE_SIZE)
        return NULL;
    struct ga_wire_page *page = ga_os_map_page(fd, GA_PAGE_SIZE);
    if (page && (page->magic != GA_PAGE_MAGIC || page->version != GA_PAGE_VERSION ||
                 page->slots != GA_PAGE_SLOTS)) {
        ga_os_unmap(page, GA_PAGE_SIZE);
        page = NULL;
    }
    return page;
}

// Starts to use a page. The old page stays mapped, because another thread may be reading it.
static bool adopt_page(struct ga_root *root, struct ga_reply *reply, uint16_t tag) {
    int fd = ga_os_raise_fd(reply->fd);
    reply->fd = -1;
    struct ga_wire_page *page = map_page(fd);
    struct ga_view *view = page ? ga_root_alloc(root, sizeof *view) : NULL;
    if (!view) {
        ga_log("the daemon's lease page cannot be used");
        // The daemon has a session for this process, but the process could not obey its limits:
        // refuse.
        atomic_store(&root->hello_refused, 1);
        ga_os_close(fd);
        return false;
    }
    struct ga_view *before = atomic_load(&root->view);
    view->page = page;
    view->tag = tag;
    for (size_t i = 0; before && before->tag == tag && i < GA_DEVICES; i++)
        atomic_store(&view->slot[i], atomic_load(&before->slot[i]));
    ga_connection_set(&root->page, fd);
    atomic_store(&root->tag, tag);
    atomic_store(&root->view, view);
    return true;
}

static void adopt_hello(struct ga_root *root, const struct ga_reply *reply) {
    ga_os_copy(root->token, reply->body.hello.session, GA_TOKEN_SIZE);
    root->has_token = true;
    ga_publish_host(root);
    // If GPUARB_ON_LOSS is "closed", the configuration cannot make it "open".
    bool closed = reply->body.hello.on_loss == GA_LOSS_CLOSED || root->env.loss_named_closed;
    atomic_store(&root->on_loss, closed ? GA_LOSS_CLOSED : GA_LOSS_OPEN);
    atomic_store(&root->host_max, reply->body.hello.host_max);
    atomic_store(&root->able, reply->body.hello.flags);
}

static void go_live(struct ga_root *root) {
    atomic_store(&root->spare.epoch, atomic_fetch_add(&root->link_epoch, 1) + 1);
    atomic_store(&root->warned, 0);
    atomic_store(&root->connect_blocked, 0);
    // A resumed session has told the daemon its debt. The debt of an earlier session is forgotten.
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        atomic_store(&root->devices[d].debt, 0);
    atomic_store(&root->link, GA_LINK_LIVE);
    ga_publish(root);
}

// Asks for a session, and waits as long as the daemon makes it wait. If the daemon dies, the Hello
// is sent again with its first number.
static bool ask_hello(struct ga_root *root, ga_wait_tick *tick, struct ga_reply *reply) {
    if (root->hello_request == 0)
        root->hello_request = next_request(root);
    struct ga_request request = {
        GA_TYPE_HELLO, root->hello_request, &root->env.hello, sizeof root->env.hello, -1, 0};
    int error = ga_wait_exchange(root, &root->spare, &request, reply, tick);
    if (error == -ETIMEDOUT)
        ga_link_note_silence(root);
    if (error == 0 && reply->header.status != GA_STATUS_SHUTTING_DOWN) {
        root->hello_request = 0;
        return true;
    }
    // There was a daemon, so treat it like a lost one, and look for it again. If it closed the
    // connection without an answer, look only once: the next daemon may do that, too.
    bool broken = error != -ETIMEDOUT && atomic_load(&root->link) != GA_LINK_LOST;
    if (reply->waited || broken) {
        atomic_store(&root->link, GA_LINK_LOST);
        root->lost_at_ms = ga_os_now_ms();
    }
    return false;
}

// Handles a daemon that opens no session. After a refusal by policy no memory is granted. This also
// applies if the daemon's tables are full: a job that fills them must not lift the limits of
// others. The reason comes in an error, because Hello's reply has no text. After other errors the
// policy for a missing daemon applies, but the user is told the true reason.
static void note_refusal(struct ga_root *root, const struct ga_reply *reply) {
    const char *text = text_of(reply);
    if (ga_message_is_turned_away(&reply->header)) {
        note_busy(root, text);
        return;
    }
    bool refused =
        reply->header.status == GA_STATUS_PERMISSION || reply->header.status == GA_STATUS_TOO_MANY;
    bool closed = refused || atomic_load(&root->on_loss) == GA_LOSS_CLOSED;
    if (refused)
        atomic_store(&root->hello_refused, 1);
    if (text[0] && atomic_exchange(&root->warned, 1) == 0)
        ga_log_user("%t: %s", text,
                    closed ? "device memory is refused" : "running without any GPU memory limit");
}

// Sums of what the process itself counts, by device.
struct sums {
    uint16_t tag;
    uint64_t used[GA_DEVICES];
    struct ga_objects_sum objects[GA_DEVICES];
};

static void sum_up(struct ga_root *root, struct sums *s) {
    ga_os_zero(s, sizeof *s);
    s->tag = atomic_load(&root->tag);
    for (uint32_t i = 0; i < atomic_load(&root->threads_used); i++) {
        struct ga_thread *t = ga_threads_at(root, i);
        uint32_t device = atomic_load(&t->device);
        if (device < GA_DEVICES)
            s->used[device] += atomic_load(&t->inflight);
    }
    struct ga_entry e;
    struct ga_walk walk = ga_self_walk(&root->blocks);
    while (ga_self_next(&walk, &e))
        if (e.tag == s->tag && e.device < GA_DEVICES)
            s->used[e.device] += e.bytes;
    for (uint32_t d = 0; d < GA_DEVICES; d++) {
        s->used[d] += atomic_load(&root->pooled[d]) + atomic_load(&root->stranded[d]);
        s->objects[d] = ga_objects_sum(root, d);
    }
}

// Reports whether anything of a device is in use. Contexts do not count, because a program may have
// them without using the device.
static bool uses(const struct sums *s, uint32_t device) {
    return s->used[device] || s->objects[device].streams;
}

// Reports whether the process holds anything that is charged with the current tag.
static bool holds(struct ga_root *root) {
    struct sums s;
    sum_up(root, &s);
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (uses(&s, d) || s.objects[d].contexts)
            return true;
    return false;
}

uint64_t ga_link_used(struct ga_root *root, uint32_t device) {
    struct sums s;
    sum_up(root, &s);
    return s.used[device];
}

// Starts to use the session that a Hello opened. Bytes acquired before were never part of a
// session, so they get no place in this one; all moves are frozen meanwhile. This also holds if
// nothing was held when the session was asked for, because another thread may just acquire its
// first bytes without a daemon. If it does so before the freeze, the bytes are found here. If
// after, it finds that the link has changed, and asks the daemon (without_daemon in admit.c).
static bool begin_session(struct ga_root *root, struct ga_reply *reply) {
    ga_threads_freeze(root);
    bool new_tag = root->has_token || holds(root);
    uint16_t tag = atomic_load(&root->tag);
    bool ok = adopt_page(root, reply, (uint16_t)(tag + new_tag));
    if (ok) {
        for (uint32_t d = 0; new_tag && d < GA_DEVICES; d++) {
            atomic_store(&root->devices[d].streams, 0);
            atomic_store(&root->stranded[d], 0);
            atomic_store(&root->pooled[d], 0);
        }
        adopt_hello(root, reply);
        go_live(root);
    }
    ga_threads_thaw(root);
    return ok;
}

// Opens a new session. The thread may wait here for long. It holds root->linking, for which only
// threads wait that need a session, too.
static bool say_hello(struct ga_root *root, ga_wait_tick *tick) {
    struct ga_reply reply = {.fd = -1};
    if (!open_connection(root, &root->spare))
        return false;
    atomic_store(&root->hello_refused, 0);
    bool ok = ask_hello(root, tick, &reply);
    if (ok && reply.header.status != GA_STATUS_OK) {
        log_status("Hello", &reply);
        note_refusal(root, &reply);
        ok = false;
    }
    if (ok &&
        reply.fd < 0) // the kernel drops the page's descriptor if the process may have no more
        atomic_store(&root->connect_error, -EMFILE);
    ok = ok && ga_message_fits(&reply, sizeof reply.body.hello) && reply.fd >= 0 &&
         begin_session(root, &reply);
    if (ok)
        return true;
    if (reply.fd >= 0)
        ga_os_close(reply.fd);
    ga_connection_set(&root->spare, -1);
    return false;
}

static void fill_leases(struct ga_root *root, struct ga_wire_resume_request *resume) {
    struct sums s;
    sum_up(root, &s);
    struct ga_view *view = atomic_load(&root->view);
    uint32_t taken = 0;
    for (uint32_t d = 0; view && d < GA_DEVICES; d++)
        if (atomic_load(&view->slot[d]))
            taken |= 1u << (atomic_load(&view->slot[d]) - 1);
    for (uint32_t d = 0; d < GA_DEVICES; d++) {
        const struct ga_device *device = &root->devices[d];
        uint32_t slot = view ? atomic_load(&view->slot[d]) : 0;
        if (!atomic_load(&device->known) || atomic_load(&device->refused) ||
            !(slot || uses(&s, d) || s.objects[d].contexts))
            continue;
        // A lease without a slot gets the first free slot.
        if (slot == 0) { // one is free, because there are as many slots as devices
            slot = (uint32_t)__builtin_ctz(~taken) + 1;
            taken |= 1u << (slot - 1);
        }
        struct ga_wire_resume_lease *l = &resume->leases[resume->count++];
        ga_os_copy(l->device, device->uuid, sizeof l->device);
        l->used = s.used[d] < GA_CREDIT_LIMIT ? s.used[d] : GA_CREDIT_LIMIT;
        l->streams = s.objects[d].streams;
        l->contexts = s.objects[d].contexts;
        l->slot = slot - 1;
    }
}

// Withdraws the credit for good, because the page's descriptor is lost. The daemon may make a new
// page. It counts the bytes that we report as used, and takes all other granted bytes back. With
// the credit withdrawn first, a daemon that still has the old page arrives at the same sums.
static void withdraw(struct ga_view *view) {
    for (size_t i = 0; i < GA_PAGE_SLOTS; i++)
        atomic_fetch_and(ga_credit_word(&view->page->lease[i]), ~GA_CREDIT_MASK);
}

// Opens leases for devices that have no slot in the new page, because frees need a slot there.
static void attach_held(struct ga_root *root) {
    struct ga_view *view = atomic_load(&root->view);
    struct sums s;
    sum_up(root, &s);
    for (uint32_t d = 0; view && d < GA_DEVICES; d++) {
        if (atomic_load(&view->slot[d]) || !uses(&s, d) || !atomic_load(&root->devices[d].known))
            continue;
        struct ga_wire_attach_request attach;
        struct ga_reply reply;
        ga_os_copy(attach.device, root->devices[d].uuid, sizeof attach.device);
        if (!exchange(root, &root->spare, GA_TYPE_ATTACH, &attach, sizeof attach, -1, &reply))
            return;
        if (reply.header.status == GA_STATUS_OK &&
            ga_message_fits(&reply, sizeof reply.body.attach) &&
            reply.body.attach.slot < GA_PAGE_SLOTS) {
            atomic_store(&root->slot_scope[d], reply.body.attach.slot_scope);
            atomic_store(&view->slot[d], (uint8_t)(reply.body.attach.slot + 1));
        }
    }
}

// Lets a daemon of an earlier version count the streams. With a newer daemon this process counts
// them itself, in the lease page (GA_STREAMS_OPEN). The earlier version begins with a number that
// its predecessor saved. Therefore gives back all streams, then requests as many as exist. From
// then on the daemon is told of each stream.
static bool return_streams(struct ga_root *root) {
    struct ga_view *view = atomic_load(&root->view);
    struct ga_reply reply;
    for (uint32_t d = 0; d < GA_DEVICES; d++) {
        uint32_t slot = atomic_load(&view->slot[d]);
        ga_word *word = slot ? ga_streams_word(&view->page->lease[slot - 1]) : NULL;
        struct ga_wire_stream_request stream = {
            .slot = slot - 1, .count = -(int32_t)GA_STREAMS_MASK, .flags = GA_FLAG_NO_WAIT};
        if (!word || !(atomic_load(word) & GA_STREAMS_OPEN))
            continue;
        if (!exchange(root, &root->spare, GA_TYPE_STREAM, &stream, sizeof stream, -1, &reply))
            return false;
        stream.count = (int32_t)atomic_load(&root->devices[d].streams);
        if (stream.count > 0 &&
            !exchange(root, &root->spare, GA_TYPE_STREAM, &stream, sizeof stream, -1, &reply))
            return false;
        atomic_store(word,
                     0); // otherwise the streams would be given back again to the next such daemon
    }
    return true;
}

// Reports the contexts, streams and thread slots of each lease, after the daemon knows the bytes.
static bool report_objects(struct ga_root *root) {
    struct ga_view *view = atomic_load(&root->view);
    for (uint32_t d = 0; d < GA_DEVICES; d++) {
        struct ga_wire_objects_request list;
        struct ga_reply reply;
        uint32_t slot = atomic_load(&view->slot[d]);
        uint32_t told = 0;
        do {
            if (slot == 0)
                break;
            ga_objects_list(root, d, told, &list);
            list.slot = slot - 1;
            told += list.count;
            if (!exchange(root, &root->spare, GA_TYPE_OBJECTS, &list, sizeof list, -1, &reply))
                return false;
            if (reply.header.status != GA_STATUS_OK)
                log_status("Objects", &reply);
        } while (list.flags & GA_OBJECTS_MORE);
    }
    return true;
}

enum resumed { RESUMED, REFUSED, FAILED };

static enum resumed resume(struct ga_root *root) {
    struct ga_wire_resume_request request;
    struct ga_reply reply;
    struct ga_view *view = atomic_load(&root->view);
    int page = atomic_load(&root->page.fd_plus_1) - 1;
    bool has_page = ga_os_is(page, &root->page.id);
    ga_os_zero(&request, sizeof request);
    ga_os_copy(request.session, root->token, sizeof request.session);
    request.hello = root->env.hello;
    request.has_page = has_page;
    if (view && !has_page)
        withdraw(view);
    fill_leases(root, &request);
    bool ok = exchange(root, &root->spare, GA_TYPE_RESUME, &request, sizeof request,
                       has_page ? page : -1, &reply);
    bool accepted = ok && reply.header.status == GA_STATUS_OK &&
                    ga_message_fits(&reply, sizeof reply.body.hello);
    bool new_page = accepted && reply.fd >= 0;
    if (ok && !accepted)
        log_status("Resume", &reply);
    if (!accepted && reply.fd >= 0)
        ga_os_close(reply.fd);
    if (!ok)
        return FAILED;
    if (!accepted && reply.header.status == GA_STATUS_TOO_MANY) {
        note_busy(root, text_of(&reply));
        return FAILED;
    }
    if (!accepted)
        return reply.header.status == GA_STATUS_SHUTTING_DOWN ? FAILED : REFUSED;
    if (new_page && !adopt_page(root, &reply, atomic_load(&root->tag)))
        return FAILED;
    if (!atomic_load(&root->view))
        return REFUSED; // there is neither an old page nor a new one
    adopt_hello(root, &reply);
    attach_held(root);
    bool able = atomic_load(&root->able) & GA_ABLE_OBJECTS;
    return (able ? report_objects(root) : return_streams(root)) ? RESUMED : FAILED;
}

static bool open_link(struct ga_root *root, ga_wait_tick *tick) {
    if (!root->has_token && !holds(root))
        return say_hello(root, tick);
    if (!open_connection(root, &root->spare))
        return false;
    if (!answers_test(root)) {
        ga_connection_set(&root->spare, -1);
        return false;
    }
    atomic_store(&root->hello_refused, 0);
    // From the sums to the new link no byte moves, so that the daemon counts each byte once.
    ga_threads_freeze(root);
    enum resumed resumed = resume(root);
    if (resumed == RESUMED)
        go_live(root);
    ga_threads_thaw(root);
    if (resumed == RESUMED)
        return true;
    ga_connection_set(&root->spare, -1);
    // The daemon does not know the session: open a new session, on a new connection.
    return resumed == REFUSED && say_hello(root, tick);
}

bool ga_link_open(struct ga_root *root, ga_wait_tick *tick) {
    if (is_still_silent(root))
        return false;
    atomic_store(&root->busy, 0);
    bool ok = open_link(root, tick);
    if (!atomic_load(&root->busy))
        root->busy_since_ms = 0;
    return ok;
}

int ga_link_join(struct ga_root *root, struct ga_connection *connection) {
    if (!open_connection(root, connection))
        return -EBUSY;
    struct ga_wire_join_request join;
    struct ga_reply reply;
    ga_os_copy(join.session, root->token, sizeof join.session);
    bool ok = exchange(root, connection, GA_TYPE_JOIN, &join, sizeof join, -1, &reply);
    if (reply.fd >= 0)
        ga_os_close(reply.fd);
    if (ok && reply.header.status == GA_STATUS_OK) {
        atomic_store(&connection->epoch, atomic_load(&root->link_epoch));
        return atomic_load(&connection->fd_plus_1) - 1;
    }
    if (ok)
        log_status("Join", &reply);
    ga_connection_set(connection, -1);
    if (ok && ga_message_is_turned_away(&reply.header))
        return -EBUSY;
    return ok && reply.header.status == GA_STATUS_TOO_MANY ? -EAGAIN : -1;
}
