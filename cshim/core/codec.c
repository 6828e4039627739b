// SPDX-License-Identifier: Apache-2.0
#include "core/codec.h"

#define NO_REPLY ((size_t)-1)

// The bytes of a reply's body when it is neither an error nor a notice.
static size_t body_of(uint16_t type) {
    switch (type) {
    case GA_TYPE_HELLO:
    case GA_TYPE_RESUME:
        return sizeof(struct ga_wire_hello_reply);
    case GA_TYPE_JOIN:
    case GA_TYPE_BYE:
    case GA_TYPE_OBJECTS:
    case GA_TYPE_JOB_CLOSE:
    case GA_TYPE_LIMIT:
    case GA_TYPE_CGROUP:
        return 0;
    case GA_TYPE_ATTACH:
        return sizeof(struct ga_wire_attach_reply);
    case GA_TYPE_ALLOC:
        return sizeof(struct ga_wire_alloc_reply);
    case GA_TYPE_STREAM:
        return sizeof(struct ga_wire_stream_reply);
    case GA_TYPE_CONTEXT:
        return sizeof(struct ga_wire_context_reply);
    case GA_TYPE_QUERY:
        return sizeof(struct ga_wire_query_reply);
    case GA_TYPE_ROOM:
        return sizeof(struct ga_wire_room_reply);
    case GA_TYPE_MEASURE:
        return sizeof(struct ga_wire_measure_reply);
    case GA_TYPE_DRIVER:
        return sizeof(struct ga_wire_driver_reply);
    case GA_TYPE_JOB_OPEN:
        return sizeof(struct ga_wire_job_open_reply);
    case GA_TYPE_SNAPSHOT:
    case GA_TYPE_METRICS:
        return sizeof(struct ga_wire_snapshot_part);
    case GA_TYPE_EVENTS:
        return sizeof(struct ga_wire_events_part);
    case GA_TYPE_CANCEL:
        return sizeof(struct ga_wire_cancel_reply);
    case GA_TYPE_JOB_TALLY:
        return sizeof(struct ga_wire_job_tally_reply);
    }
    return NO_REPLY;
}

static bool waits(uint16_t type) {
    return type == GA_TYPE_HELLO || type == GA_TYPE_ALLOC || type == GA_TYPE_STREAM ||
           type == GA_TYPE_CONTEXT || type == GA_TYPE_JOB_OPEN;
}

// Text follows the body.
static bool has_text(uint16_t type) {
    return type == GA_TYPE_SNAPSHOT || type == GA_TYPE_METRICS || type == GA_TYPE_EVENTS;
}

bool ga_codec_is_reply(const struct ga_wire_header *header, size_t n) {
    if (n < sizeof *header || header->magic != GA_MAGIC || header->length != n ||
        !(header->type & GA_REPLY_BIT))
        return false;
    if (header->version != GA_VERSION)
        return header->status == GA_STATUS_VERSION;
    size_t got = n - sizeof *header;
    if (header->status >= 100)
        return got == sizeof(struct ga_wire_error_reply);
    uint16_t type = header->type & (uint16_t)~GA_REPLY_BIT;
    size_t want = body_of(type);
    if (want == NO_REPLY)
        return false;
    if (header->status == GA_STATUS_WAITING)
        return waits(type) && got == sizeof(struct ga_wire_waiting_reply);
    // A session that is refused by policy: its reply's body has no room for the reason.
    if ((type == GA_TYPE_HELLO || type == GA_TYPE_RESUME) && header->status != GA_STATUS_OK &&
        got == sizeof(struct ga_wire_error_reply))
        return true;
    return has_text(type) ? got >= want : got == want;
}
