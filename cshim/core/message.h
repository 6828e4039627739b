// SPDX-License-Identifier: Apache-2.0
// Messages: one out, one in, on a connection.
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
    int fd;           // that came along, or −1
    bool waited;      // the daemon said that the request waits: ga_wait_exchange
    uint16_t tag;     // of the session that was asked
    uint32_t epoch;   // of the link that brought it
    uint64_t request; // its number. Set before: that of a request to send again; 0: a new one
};

#define GA_REPLY_MS 5000 // deadline of every reply but an admission's

// One message out, one in, on a descriptor that the caller owns; id is what it is.
// 0, or a negative errno; −EPIPE when the peer is gone, or the program has closed it meanwhile.
int ga_message_send(int socket, uint16_t type, uint64_t request, const void *body, size_t size,
                    int fd, int timeout_ms);
// A connection that is turned away has an answer to no request, which is taken for this one's.
int ga_message_receive(int socket, const struct ga_os_identity *id, uint16_t type, uint64_t request,
                       struct ga_reply *reply, int timeout_ms);

// The daemon has no room for one more connection now: ga_message_receive.
bool ga_message_is_turned_away(const struct ga_wire_header *header);

// True when the reply has the length of its type; else it is the daemon's mistake.
bool ga_message_fits(const struct ga_reply *reply, size_t size);

#endif
