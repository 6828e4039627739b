// SPDX-License-Identifier: Apache-2.0
#include "core/link.h"

#include <errno.h>

#include "core/connection.h"
#include "core/credit.h"
#include "core/log.h"
#include "core/objects.h"
#include "core/publish.h"
#include "core/streams.h"

// It is not had already: a handler that interrupts who has it finds no root.
void ga_link_lock(struct ga_root *root) {
    ga_self_go_away();
    ga_mutex_lock(&root->linking, -1);
}

bool ga_link_try_lock(struct ga_root *root) {
    ga_self_go_away();
    if (!ga_mutex_lock(&root->linking, 0)) {
        ga_self_come_back();
        return false;
    }
    return true;
}

void ga_link_unlock(struct ga_root *root) {
    ga_mutex_unlock(&root->linking);
    ga_self_come_back();
}

#define BUSY_MS 30000 // how long a daemon that has no room for one more program is asked for it

// There is a daemon, and it has no room for this process now. It is asked again, and meanwhile
// nothing is to be had: the process is not without a daemon.
static void be_busy(struct ga_root *root, const char *why) {
    uint64_t now = ga_os_now_ms();
    if (root->busy_since_ms == 0)
        root->busy_since_ms = now;
    bool late = !ga_link_is_asked_again(root, now);
    atomic_store(&root->busy, 1);
    if (why[0] && atomic_exchange(late ? &root->warned : &root->told_wait, 1) == 0)
        ga_log_user("%t: %s", why, late ? "device memory is refused" : "the program waits");
}

bool ga_link_is_asked_again(const struct ga_root *root, uint64_t now) {
    return now < root->busy_since_ms + BUSY_MS;
}

static bool is_bar(int error) {
    return error == -EACCES || error == -EPERM || error == -EMFILE || error == -ENFILE;
}

static int connect_any(struct ga_root *root) {
    int fd = -ENOENT;
    int bar = 0;
    for (size_t i = 0; i < 3 && root->env.socket[i][0] && fd < 0; i++) {
        fd = ga_os_connect(root->env.socket[i]);
        if (is_bar(fd))
            bar = fd;
        if (fd == -EAGAIN) // so many are in front
            be_busy(root, "the daemon has more programs waiting to connect than it can take in");
    }
    atomic_store(&root->barred, fd < 0 ? bar : 0);
    return fd;
}

// Opens a connection. It belongs to no link yet, so that only the thread that opens
// it uses it.
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

// Returns the question for a daemon that does not answer. It goes out on a connection of its own,
// root->silent. Until that connection has something to read, no thread sends the daemon anything
// else, so that no thread waits for it again. An answer, an error or the connection's end shows
// that a daemon can be asked again. The question is a query before Hello, which reserves nothing
// and changes nothing.
static struct ga_request question(struct ga_root *root) {
    static const struct ga_wire_query_request query;
    return (struct ga_request){GA_TYPE_QUERY, next_request(root), &query, sizeof query, -1, 0};
}

void ga_link_note_silence(struct ga_root *root) {
    struct ga_request request = question(root);
    if (ga_link_is_silent(root) || !open_connection(root, &root->silent))
        return;
    if (ga_message_send(atomic_load(&root->silent.fd_plus_1) - 1, request.type, request.number,
                        request.body, request.size, -1, 0) != 0)
        ga_connection_set(&root->silent, -1);
}

bool ga_link_is_silent(const struct ga_root *root) {
    return atomic_load(&root->silent.fd_plus_1) != 0;
}

// Reports whether a daemon that was noted to be silent still is. If not, closes the connection with
// the question.
static bool is_still_silent(struct ga_root *root) {
    int fd = atomic_load(&root->silent.fd_plus_1) - 1;
    if (fd < 0)
        return false;
    if (ga_os_is(fd, &root->silent.id) && ga_os_is_quiet(fd))
        return true;
    ga_connection_set(&root->silent, -1);
    return false;
}

// Asks the question on root->spare and waits for the answer. False: the daemon did not answer in
// time, and root->spare became root->silent; or it has no room for one more connection; or the
// connection broke.
static bool is_awake(struct ga_root *root) {
    struct ga_reply reply;
    struct ga_request request = question(root);
    int error = ga_wait_exchange(root, &root->spare, &request, &reply, NULL);
    if (reply.fd >= 0)
        ga_os_close(reply.fd);
    if (error == -ETIMEDOUT)
        ga_connection_move(&root->silent, &root->spare);
    else if (error == 0 && ga_message_is_turned_away(&reply.header))
        be_busy(root, text_of(&reply));
    else if (error == 0)
        return true;
    return false;
}

// Sends a request on a connection that is being opened, and waits for the reply. False: there was
// none.
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

// Maps the page that came with a reply. NULL: it is none of ours.
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

// Takes over a page. The old one stays mapped: a thread may be looking at it.
static bool adopt_page(struct ga_root *root, struct ga_reply *reply, uint16_t tag) {
    int fd = ga_os_raise_fd(reply->fd);
    reply->fd = -1;
    struct ga_wire_page *page = map_page(fd);
    struct ga_view *view = page ? ga_root_alloc(root, sizeof *view) : NULL;
    if (!view) {
        ga_log("the daemon's lease page cannot be used");
        // It has a session for us whose limits nobody would keep.
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
    // Who asked for "closed" by name keeps it, whatever the configuration says.
    ga_publish_host(root);
    bool closed = reply->body.hello.on_loss == GA_LOSS_CLOSED || root->env.loss_named_closed;
    atomic_store(&root->on_loss, closed ? GA_LOSS_CLOSED : GA_LOSS_OPEN);
    atomic_store(&root->host_max, reply->body.hello.host_max);
    atomic_store(&root->able, reply->body.hello.flags);
}

static void go_live(struct ga_root *root) {
    atomic_store(&root->spare.epoch, atomic_fetch_add(&root->link_epoch, 1) + 1);
    atomic_store(&root->warned, 0);
    atomic_store(&root->walled, 0);
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        atomic_store(&root->devices[d].debt, 0); // it was told, or is not of this session
    atomic_store(&root->link, GA_LINK_LIVE);
    ga_publish(root);
}

// Asks for a session, and waits for it as long as the daemon does. A Hello that is sent again
// because its daemon died has the number of the first.
static bool ask_hello(struct ga_root *root, ga_look *look, struct ga_reply *reply) {
    if (root->hello_request == 0)
        root->hello_request = next_request(root);
    struct ga_request request = {
        GA_TYPE_HELLO, root->hello_request, &root->env.hello, sizeof root->env.hello, -1, 0};
    int error = ga_wait_exchange(root, &root->spare, &request, reply, look);
    if (error == -ETIMEDOUT)
        ga_link_note_silence(root);
    if (error == 0 && reply->header.status != GA_STATUS_SHUTTING_DOWN) {
        root->hello_request = 0;
        return true;
    }
    // There was a daemon: it is looked for like one that had us. One that did no more than take
    // the connection is looked for once, since the next one may do the same.
    bool broken = error != -ETIMEDOUT && atomic_load(&root->link) != GA_LINK_LOST;
    if (reply->waited || broken) {
        atomic_store(&root->link, GA_LINK_LOST);
        root->lost_at_ms = ga_os_now_ms();
    }
    return false;
}

// There is a daemon, and it opens no session. What was refused by policy is not to be had at all; a
// Hello's reply has no room for words, so the daemon spells that as the error that has. The same
// where its tables are full: whoever fills them must not lift the limits of others. Else it is as
// without a daemon, but that the user hears the true reason.
static void note_refusal(struct ga_root *root, const struct ga_reply *reply) {
    const char *text = text_of(reply);
    if (ga_message_is_turned_away(&reply->header)) {
        be_busy(root, text);
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

// What the process itself counts, device by device.
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

// Whether anything of a device is in use; contexts the program may have whatever it does there.
static bool uses(const struct sums *s, uint32_t device) {
    return s->used[device] || s->objects[device].streams;
}

// Whether the process holds something that is charged under the present tag.
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

// Takes over the session that a Hello opened. What was taken so far was taken from nobody: it
// gets no place in the new session, and no byte moves meanwhile. Nor where nothing was held when
// it was asked for: another thread may take the first bytes at this moment, on the word that there
// is no daemon. It has them before the freeze, and then they are found here; or it finds behind it
// that the link is another one, and asks again (without_daemon in admit.c).
static bool begin_session(struct ga_root *root, struct ga_reply *reply) {
    ga_threads_freeze(root);
    bool anew = root->has_token || holds(root);
    uint16_t tag = atomic_load(&root->tag);
    bool ok = adopt_page(root, reply, (uint16_t)(tag + anew));
    if (ok) {
        for (uint32_t d = 0; anew && d < GA_DEVICES; d++) {
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

// Here the thread may wait for long. It holds root->linking, which only those want who need a
// session, too.
static bool say_hello(struct ga_root *root, ga_look *look) {
    struct ga_reply reply = {.fd = -1};
    if (!open_connection(root, &root->spare))
        return false;
    atomic_store(&root->hello_refused, 0);
    bool ok = ask_hello(root, look, &reply);
    if (ok && reply.header.status != GA_STATUS_OK) {
        log_status("Hello", &reply);
        note_refusal(root, &reply);
        ok = false;
    }
    if (ok && reply.fd < 0) // the kernel drops the page's descriptor where there is no room for it
        atomic_store(&root->barred, -EMFILE);
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
        // A lease that never had a slot gets the first that is free.
        if (slot == 0) { // there is one: no more devices than slots
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

// Without the page's descriptor the daemon may make a new page, and counts what we say we use; the
// rest of what it granted it has again, to give it anew. So the credit is withdrawn first, and for
// good: a daemon that has the old page still counts the same way, whether we hear of it or not.
static void withdraw(struct ga_view *view) {
    for (size_t i = 0; i < GA_PAGE_SLOTS; i++)
        atomic_fetch_and(ga_credit_word(&view->page->lease[i]), ~GA_CREDIT_MASK);
}

// Opens the leases that the new page has no slot for yet: what is freed there must find one.
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

// A daemon that lends no count of streams has the one that its predecessor wrote down. It is given
// back all of that, and asked for as many as there are; from now on it hears of each.
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
        atomic_store(word, 0); // else the next one is told
    }
    return true;
}

// Tells, of each lease, what there is that is no bytes, after the daemon knows of the bytes.
static bool tell_objects(struct ga_root *root) {
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
        be_busy(root, text_of(&reply));
        return FAILED;
    }
    if (!accepted)
        return reply.header.status == GA_STATUS_SHUTTING_DOWN ? FAILED : REFUSED;
    if (new_page && !adopt_page(root, &reply, atomic_load(&root->tag)))
        return FAILED;
    if (!atomic_load(&root->view))
        return REFUSED; // no page of ours, none of theirs
    adopt_hello(root, &reply);
    attach_held(root);
    bool able = atomic_load(&root->able) & GA_ABLE_OBJECTS;
    return (able ? tell_objects(root) : return_streams(root)) ? RESUMED : FAILED;
}

static bool open_link(struct ga_root *root, ga_look *look) {
    if (!root->has_token && !holds(root))
        return say_hello(root, look);
    if (!open_connection(root, &root->spare))
        return false;
    if (!is_awake(root)) {
        ga_connection_set(&root->spare, -1);
        return false;
    }
    atomic_store(&root->hello_refused, 0);
    // From the sums to the new link no byte moves, so that the daemon hears of each one once.
    ga_threads_freeze(root);
    enum resumed resumed = resume(root);
    if (resumed == RESUMED)
        go_live(root);
    ga_threads_thaw(root);
    if (resumed == RESUMED)
        return true;
    ga_connection_set(&root->spare, -1);
    // A daemon that does not take us up: a session from scratch, on a connection from scratch.
    return resumed == REFUSED && say_hello(root, look);
}

bool ga_link_open(struct ga_root *root, ga_look *look) {
    if (is_still_silent(root))
        return false;
    atomic_store(&root->busy, 0);
    bool ok = open_link(root, look);
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
