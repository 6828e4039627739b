// SPDX-License-Identifier: Apache-2.0
#include "lane.h"

#include <errno.h>

#include "codec.h"

// What descriptors this process holds, outside of the wiped root, so that a child can close the
// copies that it inherited. A record is only ever acted upon when the identity fits: a number that
// the program has closed may be another connection's by now, which has a record of its own.
struct inherited {
    _Atomic int fd_plus_1;
    _Atomic uint64_t dev, ino;
};
static struct inherited table[GA_LANES + 2];

static void remember(int fd, const struct ga_os_identity *id) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int free = 0;
        if (atomic_compare_exchange_strong(&table[i].fd_plus_1, &free, -1)) {
            atomic_store(&table[i].dev, id->dev);
            atomic_store(&table[i].ino, id->ino);
            atomic_store(&table[i].fd_plus_1, fd + 1);
            return;
        }
    }
}

static void forget(int fd, const struct ga_os_identity *id) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int mine = fd + 1;
        if (atomic_load(&table[i].fd_plus_1) == mine && atomic_load(&table[i].ino) == id->ino &&
            atomic_load(&table[i].dev) == id->dev &&
            atomic_compare_exchange_strong(&table[i].fd_plus_1, &mine, 0))
            return;
    }
}

void ga_lane_forget_inherited(void) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int fd = atomic_load(&table[i].fd_plus_1) - 1;
        struct ga_os_identity id = {atomic_load(&table[i].dev), atomic_load(&table[i].ino)};
        if (fd >= 0 && ga_os_is(fd, &id))
            ga_os_close(fd);
        atomic_store(&table[i].fd_plus_1, 0);
    }
}

static bool swap_owner(struct ga_lane *lane, uint64_t from) {
    uint64_t mine = (uint64_t)ga_os_stack() << 32 | ga_self.tid;
    return atomic_compare_exchange_strong_explicit(&lane->owner, &from, mine, memory_order_acquire,
                                                   memory_order_relaxed);
}

static struct ga_lane *try_take(struct ga_root *root, size_t lanes) {
    uint32_t epoch = atomic_load(&root->link_epoch);
    // First one that is connected, then any.
    for (int connected = 1; connected >= 0; connected--) {
        for (size_t i = 0; i < lanes; i++) {
            struct ga_lane *lane = &root->lanes[i];
            if (connected &&
                (atomic_load(&lane->fd_plus_1) == 0 || atomic_load(&lane->epoch) != epoch))
                continue;
            if (swap_owner(lane, 0))
                return lane;
        }
    }
    return NULL;
}

#define SLICE_MS 500

static struct ga_lane *take(struct ga_root *root, size_t lanes, int timeout_ms) {
    struct ga_lane *lane = try_take(root, lanes);
    if (GA_LIKELY(lane != NULL) || timeout_ms == 0)
        return lane;
    uint64_t end = ga_os_now_ms() + (uint64_t)timeout_ms;
    atomic_fetch_add(&root->lane_waiters, 1);
    for (;;) {
        uint32_t seen = atomic_load(&root->lane_freed);
        lane = try_take(root, lanes);
        if (lane || ga_os_now_ms() >= end)
            break;
        ga_os_wait(&root->lane_freed, seen, SLICE_MS);
    }
    atomic_fetch_sub(&root->lane_waiters, 1);
    return lane;
}

struct ga_lane *ga_lane_take(struct ga_root *root) {
    struct ga_lane *lane;
    do {
        lane = take(root, GA_LANES, SLICE_MS);
    } while (!lane);
    return lane;
}

struct ga_lane *ga_lane_take_to_wait(struct ga_root *root, int timeout_ms) {
    return take(root, GA_LANES_TO_WAIT, timeout_ms);
}

void ga_lane_give(struct ga_root *root, struct ga_lane *lane) {
    lane->type = 0;
    atomic_store(&lane->owner, 0);
    if (GA_UNLIKELY(atomic_load(&root->lane_waiters) != 0)) {
        atomic_fetch_add(&root->lane_freed, 1);
        // All: one alone might be one that may not have this lane.
        ga_os_wake(&root->lane_freed, INT32_MAX);
    }
}

// In the place of an owner who is not coming back, and is no thread.
#define NOBODY UINT32_MAX

bool ga_lane_abandon(struct ga_root *root) {
    uint32_t now = ga_os_stack() + GA_SIGNAL_FRAME;
    bool any = false;
    for (size_t i = 0; i < GA_LANES; i++) {
        struct ga_lane *lane = &root->lanes[i];
        uint64_t owner = atomic_load_explicit(&lane->owner, memory_order_relaxed);
        if ((uint32_t)owner == ga_self.tid && ga_os_left((uint32_t)(owner >> 32), now) &&
            atomic_compare_exchange_strong(&lane->owner, &owner, NOBODY))
            any = true;
        any |= owner == NOBODY;
    }
    return any;
}

struct ga_lane *ga_lane_orphan(struct ga_root *root) {
    int pid = ga_os_pid();
    for (size_t i = 0; i < GA_LANES; i++) {
        uint64_t owner = atomic_load(&root->lanes[i].owner);
        uint32_t tid = (uint32_t)owner;
        if (tid != 0 && tid != ga_self.tid &&
            (tid == NOBODY || !ga_os_thread_lives(pid, (int)tid)) &&
            swap_owner(&root->lanes[i], owner))
            return &root->lanes[i];
    }
    return NULL;
}

void ga_lane_set(struct ga_lane *lane, int fd, uint32_t epoch) {
    int had = atomic_load(&lane->fd_plus_1) - 1;
    if (had >= 0) {
        if (ga_os_is(had, &lane->id)) {
            // A forked child may have it too, and the daemon is to see the end.
            ga_os_shutdown(had);
            ga_os_close(had);
        }
        forget(had, &lane->id);
        atomic_store(&lane->fd_plus_1, 0);
    }
    if (fd < 0 || !ga_os_identify(fd, &lane->id))
        return;
    remember(fd, &lane->id);
    atomic_store(&lane->epoch, epoch);
    atomic_store(&lane->fd_plus_1, fd + 1);
}

int ga_lane_fd(struct ga_root *root, struct ga_lane *lane) {
    int fd = atomic_load(&lane->fd_plus_1) - 1;
    if (fd < 0)
        return -1;
    if (atomic_load(&lane->epoch) == atomic_load(&root->link_epoch) && ga_os_is(fd, &lane->id))
        return fd;
    ga_lane_set(lane, -1, 0);
    return -1;
}

void ga_lane_move(struct ga_lane *to, struct ga_lane *from) {
    int fd = atomic_exchange(&from->fd_plus_1, 0) - 1;
    to->id = from->id;
    atomic_store(&to->epoch, atomic_load(&from->epoch));
    atomic_store(&to->fd_plus_1, fd + 1);
}

void ga_lane_replace_page_fd(struct ga_root *root, int fd) {
    if (root->page_fd >= 0) {
        forget(root->page_fd, &root->page_id);
        if (ga_os_is(root->page_fd, &root->page_id))
            ga_os_close(root->page_fd);
    }
    root->page_fd = fd;
    if (ga_os_identify(fd, &root->page_id))
        remember(fd, &root->page_id);
}

int ga_lane_send(int socket, uint16_t type, uint64_t request, const void *body, size_t size, int fd,
                 int timeout_ms) {
    struct {
        struct ga_wire_header header;
        uint8_t body[sizeof(struct ga_wire_resume_request)];
    } message;
    if (size > sizeof message.body)
        return -EMSGSIZE;
    message.header = (struct ga_wire_header){
        .magic = GA_MAGIC,
        .version = GA_VERSION,
        .type = type,
        .length = (uint32_t)(sizeof message.header + size),
        .request = request,
    };
    if (size > 0) // there may be no body
        ga_os_copy(message.body, body, size);
    int n = ga_os_send(socket, &message, sizeof message.header + size, fd, timeout_ms);
    return n < 0 ? n : 0;
}

// Replies to another request are stale (of a wait that was given up) and are skipped; anything
// that is no reply of this protocol ends the connection.
int ga_lane_receive(int socket, const struct ga_os_identity *id, uint16_t type, uint64_t request,
                    struct ga_reply *reply, int timeout_ms) {
    for (;;) {
        struct {
            struct ga_wire_header header;
            uint8_t body[sizeof reply->body];
        } message;
        int n = ga_os_receive(socket, id, &message, sizeof message, &reply->fd, timeout_ms);
        if (n == 0)
            return -EPIPE;
        if (n < 0)
            return n;
        bool ours = ga_codec_is_reply(&message.header, (size_t)n);
        if (ours && message.header.type == (type | GA_REPLY_BIT) &&
            message.header.request == request) {
            reply->header = message.header;
            ga_os_copy(&reply->body, message.body, (size_t)n - sizeof message.header);
            return 0;
        }
        if (reply->fd >= 0)
            ga_os_close(reply->fd);
        reply->fd = -1;
        if (!ours)
            return -EPROTO;
    }
}
