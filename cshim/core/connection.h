// SPDX-License-Identifier: Apache-2.0
// The connections of a session. A thread that sends a request owns a connection until the reply has
// come. So no thread waits behind another thread's admission, and each thread notices when the
// daemon dies. session.c and link.c call these functions. The owner field is the lock of a
// connection; a dead owner's connection is reclaimed.
#ifndef GA_CONNECTION_H
#define GA_CONNECTION_H

#include "core/root.h"

// Returns a connection for the calling thread, and waits while all are in use. It may have no
// descriptor yet: then the caller opens it.
struct ga_connection *ga_connection_acquire(struct ga_root *root);
// Returns a connection for a request that may wait for admission. The last few connections are not
// for such requests: however many wait, a thread that gives something back finds a connection.
// NULL: none is free.
struct ga_connection *ga_connection_acquire_to_wait(struct ga_root *root);
// Ends the calling thread's use of a connection, which stays open.
void ga_connection_release(struct ga_root *root, struct ga_connection *connection);

// Returns the descriptor of a connection. −1: it has none, or it belongs to an earlier link, or the
// program has closed the descriptor. In the last case another file may have the number, and must
// not be written to. The caller must own the connection, here and in the next two functions.
int ga_connection_fd(struct ga_root *root, struct ga_connection *connection);
// Sets the descriptor of a connection; −1: none. Closes the previous descriptor, unless the program
// has closed it.
void ga_connection_set(struct ga_connection *connection, int fd);

// Moves the descriptor of a connection to a connection without a descriptor.
void ga_connection_move(struct ga_connection *to, struct ga_connection *from);

#endif
