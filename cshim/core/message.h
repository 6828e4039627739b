// SPDX-License-Identifier: Apache-2.0
// Messages on a connection: sends one request, receives one reply. wait.c and link.c call this. No
// function here takes a lock; the caller owns the connection.
#ifndef GA_MESSAGE_H
#define GA_MESSAGE_H

#include "core/os.h"
#include "core/wire.h"

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
        struct ga_wire_driver_reply driver;
        struct ga_wire_waiting_reply waiting;
        uint8_t bytes[1024];
    } body;
    int fd;           // descriptor that came with it; −1: none
    bool waited;      // true: the daemon has said that the request waits (ga_wait_exchange)
    uint16_t tag;     // tag of the session to which the request was sent
    uint32_t epoch;   // epoch of the link on which the reply came
    uint64_t request; // number of the request. Input: number of a request to send again; 0: a new
                      // request
};

#define GA_REPLY_MS 5000 // time limit of every reply except admissions

// Sends a message on a descriptor of the caller; fd ≥ 0 is sent with it. Returns 0 or −errno.
// −EPIPE: the daemon is gone, or the program has closed the descriptor.
int ga_message_send(int socket, uint16_t type, uint64_t request, const void *body, size_t size,
                    int fd, int timeout_ms);
// Receives the reply to a request; id identifies the socket. The daemon may turn a new connection
// away with a message that answers no request; it is returned as the reply to this one.
int ga_message_receive(int socket, const struct ga_os_identity *id, uint16_t type, uint64_t request,
                       struct ga_reply *reply, int timeout_ms);

// Reports whether the daemon has no room for another connection now, from a received header.
bool ga_message_is_turned_away(const struct ga_wire_header *header);

// Reports whether the body of a reply has `size` bytes. False: the daemon made an error.
bool ga_message_fits(const struct ga_reply *reply, size_t size);

#endif
