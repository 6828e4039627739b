// SPDX-License-Identifier: Apache-2.0
#include "core/lane.h"

#include "core/inherit.h"

_Static_assert(GA_LANES + 3 <= GA_INHERIT_MAX,
               "the lanes, the spare one, the silent one and the page are noted at one time");

static bool swap_owner(struct ga_lane *lane, uint32_t from) {
    return atomic_compare_exchange_strong_explicit(&lane->owner, &from, ga_self.tid,
                                                   memory_order_acquire, memory_order_relaxed);
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

// Frees the lanes of threads that ended in the middle of a request. The daemon takes the end of the
// connection for the request's.
static void reclaim(struct ga_root *root) {
    int pid = ga_os_pid();
    for (size_t i = 0; i < GA_LANES; i++) {
        struct ga_lane *lane = &root->lanes[i];
        uint32_t owner = atomic_load(&lane->owner);
        if (owner != 0 && !ga_os_thread_lives(pid, (int)owner) && swap_owner(lane, owner)) {
            ga_lane_set(lane, -1);
            ga_lane_give(root, lane);
        }
    }
}

#define SLICE_MS 500

struct ga_lane *ga_lane_take(struct ga_root *root) {
    struct ga_lane *lane = try_take(root, GA_LANES);
    if (GA_LIKELY(lane != NULL))
        return lane;
    atomic_fetch_add(&root->lane_waiters, 1);
    for (;;) {
        uint32_t seen = atomic_load(&root->lane_freed);
        lane = try_take(root, GA_LANES);
        if (lane)
            break;
        ga_os_wait(&root->lane_freed, seen, SLICE_MS);
        reclaim(root);
    }
    atomic_fetch_sub(&root->lane_waiters, 1);
    return lane;
}

struct ga_lane *ga_lane_take_to_wait(struct ga_root *root) {
    struct ga_lane *lane = try_take(root, GA_LANES_TO_WAIT);
    if (GA_LIKELY(lane != NULL))
        return lane;
    reclaim(root);
    return try_take(root, GA_LANES_TO_WAIT);
}

void ga_lane_give(struct ga_root *root, struct ga_lane *lane) {
    atomic_store(&lane->owner, 0);
    if (GA_UNLIKELY(atomic_load(&root->lane_waiters) != 0)) {
        atomic_fetch_add(&root->lane_freed, 1);
        ga_os_wake(&root->lane_freed, 1);
    }
}

void ga_lane_set(struct ga_lane *lane, int fd) {
    int had = atomic_load(&lane->fd_plus_1) - 1;
    if (had >= 0) {
        if (ga_os_is(had, &lane->id)) {
            // A forked child may have it too, and the daemon is to see the end.
            ga_os_shutdown(had);
            ga_os_close(had);
        }
        ga_inherit_drop(had, &lane->id);
        atomic_store(&lane->fd_plus_1, 0);
    }
    if (fd < 0 || !ga_os_identify(fd, &lane->id))
        return;
    ga_inherit_note(fd, &lane->id);
    atomic_store(&lane->epoch, 0);
    atomic_store(&lane->fd_plus_1, fd + 1);
}

int ga_lane_fd(struct ga_root *root, struct ga_lane *lane) {
    int fd = atomic_load(&lane->fd_plus_1) - 1;
    if (fd < 0)
        return -1;
    if (atomic_load(&lane->epoch) == atomic_load(&root->link_epoch) && ga_os_is(fd, &lane->id))
        return fd;
    ga_lane_set(lane, -1);
    return -1;
}

void ga_lane_move(struct ga_lane *to, struct ga_lane *from) {
    int fd = atomic_exchange(&from->fd_plus_1, 0) - 1;
    to->id = from->id;
    atomic_store(&to->epoch, atomic_load(&from->epoch));
    atomic_store(&to->fd_plus_1, fd + 1);
}
