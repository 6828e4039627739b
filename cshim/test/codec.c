// SPDX-License-Identifier: Apache-2.0
// Runs the library's decoder for cshim/cshimtest/codec_test.go, which compares it with the Go
// decoder. Stdin has messages, each after four bytes with its length. The answer to each is a line:
// "no", or the values of its header and of the first fields of its body.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/codec.h"

#define U(field) ((uint64_t)(field))

static void print_body(uint16_t type, uint32_t status, const void *body) {
    union {
        struct ga_wire_hello_reply hello;
        struct ga_wire_attach_reply attach;
        struct ga_wire_alloc_reply alloc;
        struct ga_wire_stream_reply stream;
        struct ga_wire_context_reply context;
        struct ga_wire_query_reply query;
        struct ga_wire_waiting_reply waiting;
    } b;
    memset(&b, 0, sizeof b);
    uint64_t v[4] = {0};
#define TAKE(kind) memcpy(&b.kind, body, sizeof b.kind)
    if (status >= 100) {
    } else if (status == GA_STATUS_WAITING) {
        TAKE(waiting);
        v[0] = b.waiting.ticket, v[1] = b.waiting.position, v[2] = b.waiting.waited;
    } else if (type == GA_TYPE_HELLO || type == GA_TYPE_RESUME) {
        TAKE(hello);
        v[0] = b.hello.devices, v[1] = b.hello.on_loss, v[2] = b.hello.in_job,
        v[3] = b.hello.host_max;
    } else if (type == GA_TYPE_ATTACH) {
        TAKE(attach);
        v[0] = b.attach.slot, v[1] = b.attach.index, v[2] = b.attach.total, v[3] = b.attach.budget;
    } else if (type == GA_TYPE_ALLOC) {
        TAKE(alloc);
        v[0] = b.alloc.granted, v[1] = b.alloc.requested, v[2] = b.alloc.remaining,
        v[3] = b.alloc.limit;
    } else if (type == GA_TYPE_STREAM) {
        TAKE(stream);
        v[0] = b.stream.current, v[1] = b.stream.max;
    } else if (type == GA_TYPE_CONTEXT) {
        TAKE(context);
        v[0] = b.context.current, v[1] = b.context.requested, v[2] = b.context.remaining;
    } else if (type == GA_TYPE_QUERY) {
        TAKE(query);
        v[0] = b.query.total, v[1] = b.query.used, v[2] = b.query.room;
    }
    for (int i = 0; i < 4; i++)
        printf(" %" PRIu64, v[i]);
}

int main(void) {
    static union {
        struct ga_wire_header header;
        uint8_t bytes[1 << 17];
    } m;
    uint8_t length[4];
    while (fread(length, 1, sizeof length, stdin) == sizeof length) {
        size_t n = length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16;
        memset(&m.header, 0, sizeof m.header);
        if (n > sizeof m || fread(m.bytes, 1, n, stdin) != n)
            return 1;
        if (!ga_codec_is_reply(&m.header, n)) {
            puts("no");
        } else {
            uint16_t type = m.header.type & (uint16_t)~GA_REPLY_BIT;
            printf("%u %" PRIu64 " %" PRIu64, type, U(m.header.status), U(m.header.request));
            if (m.header.version == GA_VERSION)
                print_body(type, m.header.status, m.bytes + sizeof m.header);
            puts("");
        }
        fflush(stdout);
    }
    return 0;
}
