// SPDX-License-Identifier: Apache-2.0
// Waiting for a reply that may be long in coming: the daemon says that the request waits, and
// for what, and the thread stays on its connection until the reply itself comes.
#ifndef GA_WAIT_H
#define GA_WAIT_H

#include "core/message.h"
#include "core/root.h"

// What a thread that waits does from time to time for its process. looks: how often it has.
typedef void ga_look(struct ga_root *root, uint32_t looks);

// One to send, on a lane that is the caller's.
struct ga_request {
    uint16_t type;
    uint64_t number;
    const void *body;
    size_t size;
    int fd;            // that goes along, or −1
    uint64_t until_ms; // when it is given up if it waits, as ga_os_now_ms; 0: never
};

// Sends a request and waits for its reply: for GA_REPLY_MS, then −ETIMEDOUT. Once the daemon has
// answered that the request waits (reply->waited), there is no such limit, and look is called now
// and then. Other errors are those of
// ga_message_receive; −EPIPE also when the program has closed the connection.
int ga_wait_exchange(struct ga_root *root, struct ga_lane *lane, const struct ga_request *request,
                     struct ga_reply *reply, ga_look *look);

#endif
