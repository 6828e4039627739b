// SPDX-License-Identifier: Apache-2.0
// The session with the daemon: found, opened, kept over the daemon's restarts.
#ifndef GA_SESSION_H
#define GA_SESSION_H

#include "root.h"

// What to do with a request.
enum ga_way {
    GA_WAY_ASK = 0,     // there is a session
    GA_WAY_OPEN = 1,    // no daemon: go on without
    GA_WAY_CLOSED = 2,  // no daemon: refuse
    GA_WAY_REFUSED = 3, // there is one, which refused to open the session: so is the request
};

struct ga_reply {
    struct ga_wire_header header;
    union {
        struct ga_wire_error_reply error;
        struct ga_wire_hello_reply hello;
        struct ga_wire_attach_reply attach;
        struct ga_wire_alloc_reply alloc;
        struct ga_wire_stream_reply stream;
        struct ga_wire_context_reply context;
        struct ga_wire_query_reply query;
        struct ga_wire_room_reply room;
        struct ga_wire_measure_reply measure;
        struct ga_wire_waiting_reply waiting;
        uint8_t bytes[1024];
    } body;
    int fd;           // that came along, or −1
    uint16_t tag;     // of the session that was asked
    uint32_t epoch;   // of the link that brought it
    uint64_t request; // its number. Set before: that of a request to send again; 0: a new one
};

#define GA_REPLY_MS 5000 // deadline of every reply but an admission's

// Makes sure that there is a session, or says what the policy is. Cheap when there is one,
// and (at most one attempt a second) when there is none.
enum ga_way ga_session_ensure(struct ga_root *root);
// The same, and the lease on the device is open: view->slot[device] is not 0.
enum ga_way ga_session_attach(struct ga_root *root, uint32_t device);

// Sends a request and waits for its reply, over the daemon's death if need be: then it is sent
// again with the same number, and with GA_FLAG_RETRY. Only GA_WAY_ASK leaves a reply. With a
// device ≥ 0 its lease is opened first, and its slot is written into the body's first word each
// time. timeout_ms is how long the daemon may be silent (−1: for ever); when it says that the
// request waits, it waits without limit.
enum ga_way ga_session_ask(struct ga_root *root, uint16_t type, int device, void *body, size_t size,
                           struct ga_reply *reply, int timeout_ms);
// Sends without waiting for anything but a connection. False: there is no daemon to tell.
bool ga_session_tell(struct ga_root *root, uint16_t type, const void *body, size_t size);

// Gives back what threads that died while they waited were granted, and their connections.
void ga_session_bury(struct ga_root *root);

// True when the reply has the length of its type; else it is the daemon's mistake.
bool ga_session_fits(const struct ga_reply *reply, size_t size);

#endif
