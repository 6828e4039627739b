// SPDX-License-Identifier: Apache-2.0
// Builds messages to the daemon, and receives replies. codec.c checks their form.
#include "core/message.h"

#include <errno.h>

#include "core/codec.h"

bool ga_message_fits(const struct ga_reply *reply, size_t size) {
    return reply->header.length == sizeof reply->header + size;
}

int ga_message_send(int socket, uint16_t type, uint64_t request, const void *body, size_t size,
                    int fd, int timeout_ms) {
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

bool ga_message_is_turned_away(const struct ga_wire_header *header) {
    return header->type == GA_REPLY_BIT && header->status == GA_STATUS_TOO_MANY;
}

// Skips replies to earlier requests, whose wait was given up. Any other unexpected message is an
// error after which the caller closes the connection.
int ga_message_receive(int socket, const struct ga_os_identity *id, uint16_t type, uint64_t request,
                       struct ga_reply *reply, int timeout_ms) {
    for (bool reset = false;;) {
        struct {
            struct ga_wire_header header;
            uint8_t body[sizeof reply->body];
        } message;
        int n = ga_os_receive(socket, id, &message, sizeof message, &reply->fd, timeout_ms);
        if (n == 0)
            return -EPIPE;
        if (n == -ECONNRESET && !reset) { // reported once, before messages that were sent earlier
            reset = true;
            continue;
        }
        if (n < 0)
            return n;
        bool ours = ga_codec_is_reply(&message.header, (size_t)n);
        if (ours &&
            ((message.header.type == (type | GA_REPLY_BIT) && message.header.request == request) ||
             ga_message_is_turned_away(&message.header))) {
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
