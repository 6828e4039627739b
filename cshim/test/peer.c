// SPDX-License-Identifier: Apache-2.0
// peer: a small scripted daemon for the tests of the library. It has one budget for each session
// and device, and trusts its clients.
//
//   peer SOCKET [OPTION VALUE]…
//
//   limit BYTES    budget (default 1G)                 streams N    cap (default 256)
//   surplus BYTES  credit that comes with a grant (default 0: every allocation asks)
//   loss 0|1       HelloReply.OnLoss
//   wait 1         a request that does not fit waits for a FreedNotice instead of being refused
//   able FLAGS     HelloReply.Flags; with GA_ABLE_OBJECTS it lends the count of streams
//   slots N        so many threads may have streams, contexts or holds; others wait for a slot
//   hello 1        Hello waits                         hello N      Hello is refused with status N
//   attach N       Attach is refused with status N     resume 0     refuses Resume, as a stranger
//   newpage 1      answers Resume with a new page      die N        exits at the N-th request
//   drop TYPE      closes the connection of the next request of this type, unanswered
//   quiet 1        logs no requests
//
// Lines on stdin change these options while it runs. Further commands: "show" prints a line "lease
// PID DEVICE GRANTED USED STREAMS CONTEXTS PENDING" for each lease, then "end". "stop" ends the
// peer. "notify" sets NOTIFY on the leases and takes their credit. "notice WORD" sends a text to
// waiting clients. "answer STATUS" refuses waiting requests. "admit" grants waiting requests that
// fit now, and each Hello. The end of stdin does not end the peer.
//
// The peer logs each request on stdout: "TYPE STATUS NUMBER", where NUMBER is the requested bytes
// or count. A waiting request is logged as "TYPE 99 NUMBER REQUEST", or with 1099 if it was sent
// again, or with 999 if its connection was closed meanwhile.
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/wire.h"

#define DEVICE_TOTAL (8ull << 30) // memory of a device in the reply to Query, in bytes

struct options {
    uint64_t limit, surplus, streams, loss, wait, resume, newpage, die, drop, quiet, slots, hello,
        able, attach;
} o = {.limit = 1ull << 30, .streams = 256, .resume = 1};

static const struct {
    const char *name;
    uint64_t *value;
} option_names[] = {
    {"limit", &o.limit}, {"surplus", &o.surplus}, {"streams", &o.streams}, {"loss", &o.loss},
    {"wait", &o.wait},   {"resume", &o.resume},   {"die", &o.die},         {"newpage", &o.newpage},
    {"drop", &o.drop},   {"quiet", &o.quiet},     {"slots", &o.slots},     {"hello", &o.hello},
    {"able", &o.able},   {"attach", &o.attach},
};

struct lease {
    bool open;
    uint8_t device[16];
    uint64_t granted;
    int64_t streams, contexts;
};

struct session {
    bool used;
    int pid;
    uint8_t token[16];
    struct ga_wire_page *page;
    struct lease lease[GA_PAGE_SLOTS];
    uint64_t granted[64]; // numbers of the last granted requests
    unsigned n_granted;
    int memfd;
};

union request {
    struct ga_wire_alloc_request alloc;
    struct ga_wire_stream_request stream;
    struct ga_wire_context_request context;
};

struct waiter {
    int fd;
    struct ga_wire_header header;
    union request request;
    struct session *session;
};

// Thread that has a slot, and the number of its objects.
struct holder {
    const struct session *session;
    uint32_t thread;
    int64_t objects;
};

#define MANY 256
static struct session sessions[MANY];
static struct waiter waiters[MANY]; // in order of arrival
static size_t n_waiters;
static struct holder holders[MANY];
static uint64_t most_holders;
static struct pollfd polls[MANY + 2];
static struct session *owner[MANY + 2];
static nfds_t n_polls;
static uint64_t requests;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t size_of(const char *text) {
    char *end;
    uint64_t v = strtoull(text, &end, 0);
    const char *units = "KMGT";
    const char *unit = *end ? strchr(units, *end) : NULL;
    return unit ? v << (10 * (unit - units + 1)) : v;
}

static void set_option(const char *name, const char *value) {
    for (size_t i = 0; i < sizeof option_names / sizeof option_names[0]; i++)
        if (strcmp(option_names[i].name, name) == 0) {
            *option_names[i].value = size_of(value);
            return;
        }
    fprintf(stderr, "peer: no option %s\n", name);
    exit(2);
}

// The page

static _Atomic uint64_t *word(struct session *s, uint32_t slot) {
    return (_Atomic uint64_t *)&s->page->lease[slot].credit;
}

static uint64_t credit(struct session *s, uint32_t slot) {
    return atomic_load(word(s, slot)) & GA_CREDIT_MASK;
}

// Changes credit and flags as the daemon does: sets the next epoch, then resets the minimum.
// Returns the previous credit, which is no longer granted.
static uint64_t change(struct session *s, uint32_t slot, uint64_t bytes, uint64_t flags) {
    uint64_t seen = atomic_load(word(s, slot));
    uint64_t next;
    do {
        uint64_t epoch = (seen + (1ull << GA_EPOCH_SHIFT)) & GA_EPOCH_MASK;
        next = flags | epoch | bytes;
    } while (!atomic_compare_exchange_weak(word(s, slot), &seen, next));
    atomic_store((_Atomic uint64_t *)&s->page->lease[slot].low,
                 next & ~(GA_FLAG_NOTIFY | GA_FLAG_CLOSED));
    return seen & GA_CREDIT_MASK;
}

static void make_page(struct session *s) {
    s->memfd = memfd_create("gpuarb-lease", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (s->memfd < 0 || ftruncate(s->memfd, GA_PAGE_SIZE) != 0)
        fail("memfd");
    s->page = mmap(NULL, GA_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, s->memfd, 0);
    if (s->page == MAP_FAILED)
        fail("mmap");
    s->page->magic = GA_PAGE_MAGIC;
    s->page->version = GA_PAGE_VERSION;
    s->page->slots = GA_PAGE_SLOTS;
}

static struct session *make_session(int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    for (size_t i = 0; i < MANY; i++) {
        if (sessions[i].used)
            continue;
        sessions[i] = (struct session){.used = true, .memfd = -1};
        for (size_t n = 0; n < 16; n++)
            sessions[i].token[n] = (uint8_t)(rand() >> 7);
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
            sessions[i].pid = peer.pid;
        return &sessions[i];
    }
    fail("too many sessions");
    return NULL;
}

static struct session *find_session(const uint8_t token[16]) {
    for (size_t i = 0; i < MANY; i++)
        if (sessions[i].used && memcmp(sessions[i].token, token, 16) == 0)
            return &sessions[i];
    return NULL;
}

// Replies

static void reply(int fd, const struct ga_wire_header *to, uint32_t status, const void *body,
                  size_t size, int send_fd) {
    struct {
        struct ga_wire_header header;
        uint8_t body[1024];
    } m = {.header = *to};
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {&m, sizeof m.header + size};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    m.header.type |= GA_REPLY_BIT;
    m.header.status = status;
    m.header.length = (uint32_t)iov.iov_len;
    memcpy(m.body, body, size);
    if (send_fd >= 0) {
        h.msg_control = control;
        h.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &send_fd, sizeof send_fd);
    }
    sendmsg(fd, &h, MSG_NOSIGNAL);
}

static void refuse(int fd, const struct ga_wire_header *to, uint32_t status, const char *why) {
    struct ga_wire_error_reply error = {{0}};
    strcpy((char *)error.text, why);
    reply(fd, to, status, &error, sizeof error, -1);
}

static void log_request(uint16_t type, uint32_t status, int64_t n) {
    if (o.quiet)
        return;
    printf("%u %u %lld\n", type, status, (long long)n);
    fflush(stdout);
}

// Admission

// Another client waits for bytes of the lease, so a free must send a notice.
static uint64_t notify(const struct session *s, uint32_t slot) {
    for (size_t i = 0; i < n_waiters; i++)
        if (waiters[i].session == s && waiters[i].header.type == GA_TYPE_ALLOC &&
            waiters[i].request.alloc.slot == slot)
            return GA_FLAG_NOTIFY;
    return 0;
}

static bool grant(struct session *s, const struct ga_wire_alloc_request *r) {
    struct lease *l = &s->lease[r->slot];
    // Recall credit before refusing.
    l->granted -= change(s, r->slot, 0, notify(s, r->slot));
    if (r->bytes > o.limit || l->granted > o.limit - r->bytes)
        return false;
    l->granted += r->bytes;
    uint64_t room = o.limit - l->granted;
    uint64_t more = room < o.surplus ? room : o.surplus;
    l->granted += more;
    l->granted -= change(s, r->slot, more, notify(s, r->slot));
    return true;
}

// Waiting requests

static int64_t number_of(uint16_t type, const union request *r) {
    switch (type) {
    case GA_TYPE_ALLOC:
        return (int64_t)r->alloc.bytes;
    case GA_TYPE_STREAM:
        return r->stream.count;
    case GA_TYPE_CONTEXT:
        return r->context.count;
    }
    return 0;
}

static void log_waiter(const struct waiter *w, unsigned status) {
    if (o.quiet)
        return;
    printf("%u %u %lld %llu\n", w->header.type, status,
           (long long)number_of(w->header.type, &w->request),
           (unsigned long long)w->header.request);
    fflush(stdout);
}

static void notice(const struct waiter *w, const char *text) {
    struct ga_wire_waiting_reply a = {.ticket = w->header.request, .position = 1};
    snprintf((char *)a.text, sizeof a.text, "%s", text);
    reply(w->fd, &w->header, GA_STATUS_WAITING, &a, sizeof a, -1);
}

static void park(int fd, const struct ga_wire_header *h, struct session *s, const union request *r,
                 uint32_t flags) {
    if (n_waiters == MANY)
        fail("too many waiters");
    struct waiter *w = &waiters[n_waiters++];
    *w = (struct waiter){fd, *h, *r, s};
    log_waiter(w, flags & GA_FLAG_RETRY ? 1099 : 99);
    notice(w, "waits for the peer");
}

static void leave(size_t i) {
    memmove(&waiters[i], &waiters[i + 1], (--n_waiters - i) * sizeof waiters[0]);
}

static void drop_waiters(int fd) {
    for (size_t i = 0; i < n_waiters; i++) {
        if (waiters[i].fd != fd)
            continue;
        log_waiter(&waiters[i], 999);
        leave(i--);
    }
}

static uint32_t answer_waiters(int fd, uint32_t status) {
    uint32_t answered = 0;
    for (size_t i = 0; i < n_waiters; i++) {
        struct ga_wire_alloc_reply a = {.requested = 0};
        struct waiter *w = &waiters[i];
        if (fd >= 0 && w->fd != fd)
            continue;
        snprintf((char *)a.text, sizeof a.text, "refused by the peer");
        log_request(w->header.type, status, number_of(w->header.type, &w->request));
        switch (w->header.type) {
        case GA_TYPE_ALLOC:
            reply(w->fd, &w->header, status, &a, sizeof a, -1);
            break;
        case GA_TYPE_STREAM:
            reply(w->fd, &w->header, status, &a, sizeof(struct ga_wire_stream_reply), -1);
            break;
        case GA_TYPE_CONTEXT:
            reply(w->fd, &w->header, status, &a, sizeof(struct ga_wire_context_reply), -1);
            break;
        default:
            refuse(w->fd, &w->header, status, "refused by the peer");
        }
        leave(i--);
        answered++;
    }
    return answered;
}

// Gives a slot to a thread with its first object. False: no slot is free, and the thread can wait
// for one.
static bool take_slot(const struct session *s, uint32_t thread, int32_t count, bool can_wait) {
    struct holder *free = NULL;
    struct holder *mine = NULL;
    uint64_t taken = 0;
    for (size_t i = 0; i < MANY; i++) {
        struct holder *h = &holders[i];
        if (h->objects == 0)
            free = free ? free : h;
        else if (h->session == s && h->thread == thread)
            mine = h;
        taken += h->objects != 0;
    }
    if (!mine && count < 0)
        return true;
    if (!mine && can_wait && o.slots && taken >= o.slots)
        return false;
    if (!mine) {
        *free = (struct holder){.session = s, .thread = thread};
        mine = free;
        most_holders = taken + 1 > most_holders ? taken + 1 : most_holders;
    }
    mine->objects += count;
    if (mine->objects < 0)
        fail("a slot was given back too often");
    return true;
}

// Handlers of requests. Each sends its reply; false: the request must wait.

static bool do_alloc(int fd, const struct ga_wire_header *h, struct session *s,
                     const struct ga_wire_alloc_request *r) {
    struct ga_wire_alloc_reply a = {.requested = r->bytes, .limit = o.limit};
    // The reply to this request was lost, or came too late to count: the client has the bytes
    // already.
    bool known = false;
    for (size_t i = 0; (r->flags & GA_FLAG_RETRY) && i < 64; i++)
        known |= s->granted[i] == h->request;
    if (known || grant(s, r)) {
        if (!known)
            s->granted[s->n_granted++ % 64] = h->request;
        a.granted = r->bytes;
        log_request(h->type, r->flags & GA_FLAG_RETRY ? 1000 : 0, (int64_t)r->bytes);
        reply(fd, h, GA_STATUS_OK, &a, sizeof a, -1);
        return true;
    }
    bool waits = o.wait && r->bytes <= o.limit;
    if (waits && !(r->flags & GA_FLAG_NO_WAIT)) {
        s->lease[r->slot].granted -= change(s, r->slot, 0, GA_FLAG_NOTIFY);
        return false;
    }
    uint32_t status = waits                ? GA_STATUS_BUSY
                      : r->bytes > o.limit ? GA_STATUS_TOO_LARGE
                                           : GA_STATUS_OVER_BUDGET;
    a.remaining = o.limit > s->lease[r->slot].granted ? o.limit - s->lease[r->slot].granted : 0;
    log_request(h->type, status, (int64_t)r->bytes);
    reply(fd, h, status, &a, sizeof a, -1);
    return true;
}

static bool do_stream(int fd, const struct ga_wire_header *h, struct session *s,
                      const struct ga_wire_stream_request *r) {
    struct lease *l = &s->lease[r->slot];
    struct ga_wire_stream_reply a = {.max = (uint32_t)o.streams};
    uint32_t status = GA_STATUS_OK;
    _Atomic uint64_t *lent = (_Atomic uint64_t *)&s->page->lease[r->slot].streams;
    uint64_t word = atomic_exchange(lent, 0);
    if (word & GA_STREAMS_OPEN)
        l->streams = (int64_t)(word & GA_STREAMS_MASK);
    if (l->streams + r->count > (int64_t)o.streams)
        status = GA_STATUS_STREAMS;
    else if (!take_slot(s, r->thread, r->count, true))
        return false;
    else
        l->streams += r->count;
    a.current = (uint32_t)l->streams;
    if (o.able & GA_ABLE_OBJECTS)
        atomic_store(lent, GA_STREAMS_OPEN | o.streams << GA_STREAMS_MAX_SHIFT | a.current);
    log_request(h->type, status, r->count);
    reply(fd, h, status, &a, sizeof a, -1);
    return true;
}

static bool do_context(int fd, const struct ga_wire_header *h, struct session *s,
                       const struct ga_wire_context_request *r) {
    struct lease *l = &s->lease[r->slot];
    struct ga_wire_context_reply a = {0};
    if (!take_slot(s, r->thread, r->count, !(r->flags & GA_FLAG_NOTICED)))
        return false;
    if (!(r->flags & GA_FLAG_HOLD))
        l->contexts += r->count;
    a.current = (uint32_t)l->contexts;
    log_request(h->type, 0, r->count);
    reply(fd, h, GA_STATUS_OK, &a, sizeof a, -1);
    return true;
}

static bool attempt(int fd, const struct ga_wire_header *h, struct session *s,
                    const union request *r) {
    switch (h->type) {
    case GA_TYPE_ALLOC:
        return do_alloc(fd, h, s, &r->alloc);
    case GA_TYPE_STREAM:
        return do_stream(fd, h, s, &r->stream);
    case GA_TYPE_CONTEXT:
        return do_context(fd, h, s, &r->context);
    }
    return false;
}

static uint32_t flags_of(uint16_t type, const union request *r) {
    return type == GA_TYPE_ALLOC    ? r->alloc.flags
           : type == GA_TYPE_STREAM ? r->stream.flags
                                    : r->context.flags;
}

static void serve_waiters(void) {
    for (size_t i = 0; i < n_waiters; i++) {
        struct waiter w = waiters[i];
        if (w.header.type != GA_TYPE_HELLO && attempt(w.fd, &w.header, w.session, &w.request))
            leave(i--);
    }
}

// Handlers of requests that may wait. A release lets waiting requests in.
static void arbitrate(int fd, const struct ga_wire_header *h, struct session *s,
                      const union request *r) {
    static const struct ga_wire_context_reply busy;
    bool no_wait = flags_of(h->type, r) & GA_FLAG_NO_WAIT;
    if (attempt(fd, h, s, r)) {
        if (number_of(h->type, r) < 0)
            serve_waiters();
    } else if (no_wait) {
        log_request(h->type, GA_STATUS_BUSY, number_of(h->type, r));
        reply(fd, h, GA_STATUS_BUSY, &busy,
              h->type == GA_TYPE_STREAM ? sizeof busy : sizeof(struct ga_wire_context_reply), -1);
    } else {
        park(fd, h, s, r, flags_of(h->type, r));
    }
}

// Sessions

static void say_hello(int fd, const struct ga_wire_header *h, struct session *s, int send_fd) {
    struct ga_wire_hello_reply r = {.devices = 2,
                                    .on_loss = (uint32_t)o.loss,
                                    .flags = (uint32_t)o.able,
                                    .host_max = GA_NO_LIMIT};
    memcpy(r.session, s->token, sizeof r.session);
    reply(fd, h, GA_STATUS_OK, &r, sizeof r, send_fd);
}

// Accepts a client's own sum. The client has released all credit that its page no longer shows, and
// bytes that it does not count never reached it.
static void recount(struct session *s, const struct ga_wire_resume_lease *r) {
    struct lease *l = &s->lease[r->slot];
    if (!l->open) {
        memcpy(l->device, r->device, 16);
        l->streams = r->streams;
        l->contexts = r->contexts;
        l->open = true;
    }
    l->granted = r->used + credit(s, r->slot);
    s->page->lease[r->slot].limit = o.limit;
}

// Resumes a known session. Forgets the numbers of granted requests: the sums contain the grants
// that arrived, and the client requests the others again.
static void take_up(struct session *s, const struct ga_wire_resume_request *r) {
    memset(s->granted, 0, sizeof s->granted);
    for (uint32_t i = 0; i < r->count; i++)
        recount(s, &r->leases[i]);
}

static struct session *do_resume(int fd, const struct ga_wire_header *h,
                                 const struct ga_wire_resume_request *r, int page_fd) {
    struct session *s = find_session(r->session);
    if (!o.resume) {
        log_request(h->type, GA_STATUS_NO_SESSION, r->count);
        refuse(fd, h, GA_STATUS_NO_SESSION, "who are you?");
        return NULL;
    }
    if (s) {
        log_request(h->type, 0, r->count);
        take_up(s, r);
        say_hello(fd, h, s, -1);
        serve_waiters();
        return s;
    }
    s = make_session(fd);
    memcpy(s->token, r->session, 16);
    bool reuse = page_fd >= 0 && !o.newpage;
    if (reuse) {
        s->memfd = dup(page_fd);
        s->page = mmap(NULL, GA_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
    } else {
        make_page(s);
    }
    for (uint32_t i = 0; i < r->count; i++) {
        recount(s, &r->leases[i]);
        log_request(h->type, 0, (int64_t)r->leases[i].used);
    }
    say_hello(fd, h, s, reuse ? -1 : s->memfd);
    return s;
}

static void do_attach(int fd, const struct ga_wire_header *h, struct session *s,
                      const struct ga_wire_attach_request *r) {
    if (o.attach) {
        log_request(h->type, (uint32_t)o.attach, 0);
        refuse(fd, h, (uint32_t)o.attach, "refused by the peer");
        return;
    }
    struct ga_wire_attach_reply a = {
        .total = DEVICE_TOTAL, .budget = o.limit, .slot_scope = o.slots ? GA_SCOPE_THREAD : 0};
    for (a.slot = 0; a.slot < GA_PAGE_SLOTS; a.slot++)
        if (!s->lease[a.slot].open || memcmp(s->lease[a.slot].device, r->device, 16) == 0)
            break;
    s->lease[a.slot].open = true;
    memcpy(s->lease[a.slot].device, r->device, 16);
    s->page->lease[a.slot].limit = o.limit;
    log_request(h->type, 0, a.slot);
    reply(fd, h, GA_STATUS_OK, &a, sizeof a, -1);
}

static uint64_t used(struct session *s) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < GA_PAGE_SLOTS; i++)
        sum += s->lease[i].granted - credit(s, i);
    return sum;
}

static void show(void) {
    for (size_t i = 0; i < MANY; i++) {
        struct session *s = &sessions[i];
        for (uint32_t n = 0; s->used && n < GA_PAGE_SLOTS; n++) {
            struct lease *l = &s->lease[n];
            if (l->open)
                printf("lease %d %u %llu %llu %lld %lld %llu\n", s->pid, n,
                       (unsigned long long)l->granted,
                       (unsigned long long)(l->granted - credit(s, n)), (long long)l->streams,
                       (long long)l->contexts, (unsigned long long)s->page->lease[n].pending);
        }
    }
    printf("waiters %zu most %llu\n", n_waiters, (unsigned long long)most_holders);
    printf("end\n");
    fflush(stdout);
}

static void open_session(size_t at, const struct ga_wire_header *h) {
    struct session *s = make_session(polls[at].fd);
    owner[at] = s;
    make_page(s);
    log_request(h->type, 0, s->pid);
    say_hello(polls[at].fd, h, s, s->memfd);
}

static void do_hello(size_t at, const struct ga_wire_header *h) {
    static const union request none;
    if (o.hello == 0) {
        open_session(at, h);
    } else if (o.hello == 1) {
        park(polls[at].fd, h, NULL, &none, 0);
    } else {
        log_request(h->type, (uint32_t)o.hello, 0);
        refuse(polls[at].fd, h, (uint32_t)o.hello, "refused by the peer");
    }
}

static void admit(void) {
    for (size_t i = 0; i < n_waiters; i++) {
        struct waiter w = waiters[i];
        for (size_t at = 2; w.header.type == GA_TYPE_HELLO && at < n_polls; at++)
            if (polls[at].fd == w.fd) {
                open_session(at, &w.header);
                leave(i--);
                break;
            }
    }
    serve_waiters();
}

// Handles one message. False: close the connection.
static bool handle(size_t at) {
    union {
        struct {
            struct ga_wire_header h;
            union {
                struct ga_wire_resume_request resume;
                struct ga_wire_join_request join;
                struct ga_wire_attach_request attach;
                struct ga_wire_alloc_request alloc;
                struct ga_wire_stream_request stream;
                struct ga_wire_context_request context;
                struct ga_wire_freed_notice freed;
                union request any;
            } b;
        } m;
        uint8_t bytes[GA_MAX_REQUEST];
    } in;
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&in, sizeof in};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int fd = polls[at].fd;
    ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
    if (n < (ssize_t)sizeof in.m.h)
        return false;
    int got = -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(&got, CMSG_DATA(c), sizeof got);
    if (++requests == o.die)
        _exit(9);
    if (o.drop == in.m.h.type) {
        o.drop = 0;
        return false;
    }
    struct session *s = owner[at];
    switch (in.m.h.type) {
    case GA_TYPE_HELLO:
        do_hello(at, &in.m.h);
        return true;
    case GA_TYPE_RESUME:
        owner[at] = do_resume(fd, &in.m.h, &in.m.b.resume, got);
        if (got >= 0)
            close(got);
        return owner[at] != NULL;
    case GA_TYPE_JOIN:
        owner[at] = s = find_session(in.m.b.join.session);
        log_request(in.m.h.type, s ? 0 : GA_STATUS_NO_SESSION, 0);
        if (s)
            reply(fd, &in.m.h, GA_STATUS_OK, "", 0, -1);
        else
            refuse(fd, &in.m.h, GA_STATUS_NO_SESSION, "no such session");
        return true;
    }
    if (!s) {
        refuse(fd, &in.m.h, GA_STATUS_ORDER, "Hello first");
        return true;
    }
    switch (in.m.h.type) {
    case GA_TYPE_ATTACH:
        do_attach(fd, &in.m.h, s, &in.m.b.attach);
        break;
    case GA_TYPE_ALLOC:
    case GA_TYPE_STREAM:
    case GA_TYPE_CONTEXT:
        arbitrate(fd, &in.m.h, s, &in.m.b.any);
        break;
    case GA_TYPE_GIVE_UP:
        log_request(in.m.h.type, 0, (int64_t)answer_waiters(fd, GA_STATUS_CANCELLED));
        break;
    case GA_TYPE_FREED:
        log_request(in.m.h.type, 0, in.m.b.freed.slot);
        serve_waiters();
        break;
    case GA_TYPE_ROOM: {
        struct ga_wire_room_reply a = {
            .total = o.limit, .used = used(s), .room = DEVICE_TOTAL, .slot = GA_NO_SLOT};
        log_request(in.m.h.type, 0, 0);
        reply(fd, &in.m.h, GA_STATUS_OK, &a, sizeof a, -1);
        break;
    }
    case GA_TYPE_QUERY: {
        struct ga_wire_query_reply a = {.total = o.limit, .used = used(s), .room = DEVICE_TOTAL};
        log_request(in.m.h.type, 0, 0);
        reply(fd, &in.m.h, GA_STATUS_OK, &a, sizeof a, -1);
        break;
    }
    default:
        refuse(fd, &in.m.h, GA_STATUS_UNKNOWN_TYPE, "unknown type");
    }
    return true;
}

static void command(char *line) {
    char name[32], value[64] = "";
    if (sscanf(line, "%31s %63s", name, value) < 1)
        return;
    if (strcmp(name, "show") == 0)
        show();
    else if (strcmp(name, "stop") == 0)
        exit(0);
    else if (strcmp(name, "notice") == 0) {
        for (size_t i = 0; i < n_waiters; i++)
            notice(&waiters[i], value);
    } else if (strcmp(name, "answer") == 0)
        answer_waiters(-1, (uint32_t)size_of(value));
    else if (strcmp(name, "admit") == 0)
        admit();
    else if (strcmp(name, "notify") == 0) {
        for (size_t i = 0; i < MANY; i++)
            for (uint32_t n = 0; sessions[i].used && n < GA_PAGE_SLOTS; n++)
                sessions[i].lease[n].granted -= change(&sessions[i], n, 0, GA_FLAG_NOTIFY);
    } else
        set_option(name, value);
}

static void read_commands(void) {
    static char text[4096];
    static size_t have;
    ssize_t n = read(0, text + have, sizeof text - 1 - have);
    if (n <= 0) {
        polls[0].fd = -1;
        return;
    }
    have += (size_t)n;
    text[have] = '\0';
    char *start = text;
    for (char *end; (end = strchr(start, '\n')); start = end + 1) {
        *end = '\0';
        command(start);
    }
    have = strlen(start);
    memmove(text, start, have + 1);
}

int main(int argc, char **argv) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (argc < 2 || strlen(argv[1]) >= sizeof at.sun_path)
        return 2;
    for (int i = 2; i + 1 < argc; i += 2)
        set_option(argv[i], argv[i + 1]);
    strcpy(at.sun_path, argv[1]);
    unlink(at.sun_path);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(listener, 64) != 0)
        fail(argv[1]);
    srand((unsigned)getpid());
    polls[0] = (struct pollfd){.fd = 0, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = listener, .events = POLLIN};
    n_polls = 2;
    printf("listening\n");
    fflush(stdout);
    for (;;) {
        if (poll(polls, n_polls, -1) < 0 && errno != EINTR)
            fail("poll");
        if (polls[0].revents)
            read_commands();
        for (size_t i = 2; i < n_polls; i++) {
            if (!polls[i].revents || handle(i))
                continue;
            drop_waiters(polls[i].fd);
            close(polls[i].fd);
            polls[i] = polls[--n_polls];
            owner[i] = owner[n_polls];
            i--;
        }
        if (polls[1].revents) {
            int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0 && n_polls < MANY + 2) {
                owner[n_polls] = NULL;
                polls[n_polls++] = (struct pollfd){.fd = fd, .events = POLLIN};
            }
        }
    }
}
