// SPDX-License-Identifier: Apache-2.0
// Acquires, releases and closes the connections in root.connections. link.c opens them.
#include "core/connection.h"

#include "core/inherit.h"

_Static_assert(GA_CONNECTIONS + 3 <= GA_INHERIT_MAX,
               "the connections, the spare one, the silent one and the page are noted at one time");

static bool swap_owner(struct ga_connection *connection, uint32_t from) {
    return atomic_compare_exchange_strong_explicit(&connection->owner, &from, ga_self.tid,
                                                   memory_order_acquire, memory_order_relaxed);
}

static struct ga_connection *try_acquire(struct ga_root *root, size_t connections) {
    uint32_t epoch = atomic_load(&root->link_epoch);
    // Prefer a connection that is open.
    for (int connected = 1; connected >= 0; connected--) {
        for (size_t i = 0; i < connections; i++) {
            struct ga_connection *connection = &root->connections[i];
            if (connected && (atomic_load(&connection->fd_plus_1) == 0 ||
                              atomic_load(&connection->epoch) != epoch))
                continue;
            if (swap_owner(connection, 0))
                return connection;
        }
    }
    return NULL;
}

// Frees the connections of threads that ended in the middle of a request. The daemon takes the end
// of such a connection as the end of its request.
static void reclaim(struct ga_root *root) {
    int pid = ga_os_pid();
    for (size_t i = 0; i < GA_CONNECTIONS; i++) {
        struct ga_connection *connection = &root->connections[i];
        uint32_t owner = atomic_load(&connection->owner);
        if (owner != 0 && !ga_os_thread_lives(pid, (int)owner) && swap_owner(connection, owner)) {
            ga_connection_set(connection, -1);
            ga_connection_release(root, connection);
        }
    }
}

#define SLICE_MS 500

struct ga_connection *ga_connection_acquire(struct ga_root *root) {
    struct ga_connection *connection = try_acquire(root, GA_CONNECTIONS);
    if (GA_LIKELY(connection != NULL))
        return connection;
    atomic_fetch_add(&root->connection_waiters, 1);
    for (;;) {
        uint32_t seen = atomic_load(&root->connection_freed);
        connection = try_acquire(root, GA_CONNECTIONS);
        if (connection)
            break;
        ga_os_wait(&root->connection_freed, seen, SLICE_MS);
        reclaim(root);
    }
    atomic_fetch_sub(&root->connection_waiters, 1);
    return connection;
}

struct ga_connection *ga_connection_acquire_to_wait(struct ga_root *root) {
    struct ga_connection *connection = try_acquire(root, GA_CONNECTIONS_TO_WAIT);
    if (GA_LIKELY(connection != NULL))
        return connection;
    reclaim(root);
    return try_acquire(root, GA_CONNECTIONS_TO_WAIT);
}

void ga_connection_release(struct ga_root *root, struct ga_connection *connection) {
    atomic_store(&connection->owner, 0);
    if (GA_UNLIKELY(atomic_load(&root->connection_waiters) != 0)) {
        atomic_fetch_add(&root->connection_freed, 1);
        ga_os_wake(&root->connection_freed, 1);
    }
}

void ga_connection_set(struct ga_connection *connection, int fd) {
    int had = atomic_load(&connection->fd_plus_1) - 1;
    if (had >= 0) {
        if (ga_os_is(had, &connection->id)) {
            // Shut it down first, because a forked child may have a copy: the daemon must see the
            // end.
            ga_os_shutdown(had);
            ga_os_close(had);
        }
        ga_inherit_drop(had, &connection->id);
        atomic_store(&connection->fd_plus_1, 0);
    }
    if (fd < 0 || !ga_os_identify(fd, &connection->id))
        return;
    ga_inherit_note(fd, &connection->id);
    atomic_store(&connection->epoch, 0);
    atomic_store(&connection->fd_plus_1, fd + 1);
}

int ga_connection_fd(struct ga_root *root, struct ga_connection *connection) {
    int fd = atomic_load(&connection->fd_plus_1) - 1;
    if (fd < 0)
        return -1;
    if (atomic_load(&connection->epoch) == atomic_load(&root->link_epoch) &&
        ga_os_is(fd, &connection->id))
        return fd;
    ga_connection_set(connection, -1);
    return -1;
}

void ga_connection_move(struct ga_connection *to, struct ga_connection *from) {
    int fd = atomic_exchange(&from->fd_plus_1, 0) - 1;
    to->id = from->id;
    atomic_store(&to->epoch, atomic_load(&from->epoch));
    atomic_store(&to->fd_plus_1, fd + 1);
}
