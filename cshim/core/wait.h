// SPDX-License-Identifier: Apache-2.0
// The wait for a reply that may take long. The daemon first answers that the request waits, and for
// what. The thread stays on its connection until the final reply comes. session.c and link.c call
// this; the caller owns the connection.
#ifndef GA_WAIT_H
#define GA_WAIT_H

#include "core/message.h"
#include "core/root.h"

// Function that a waiting thread calls every 100 ms, to give back what its process no longer needs.
// ticks: number of calls in this wait.
typedef void ga_wait_tick(struct ga_root *root, uint32_t ticks);

// A request to send.
struct ga_request {
    uint16_t type;
    uint64_t number;
    const void *body;
    size_t size;
    int fd;            // descriptor that is sent with it; −1: none
    uint64_t until_ms; // if it waits, it is given up at this time (ga_os_now_ms); 0: never
};

// Sends a request on a connection that the caller has taken, and waits for its reply. Returns 0 or
// −errno: −ETIMEDOUT after GA_REPLY_MS; −EPIPE also if the program has closed the connection; other
// errors are those of ga_message_receive. After the daemon has answered that the request waits
// (reply->waited), there is no time limit, and tick is called every 100 ms.
int ga_wait_exchange(struct ga_root *root, struct ga_connection *connection,
                     const struct ga_request *request, struct ga_reply *reply, ga_wait_tick *tick);

#endif
