// SPDX-License-Identifier: Apache-2.0
// Table of the valid replies, and the check of a message against it. cshim/test/codec.c runs the
// check on messages from cshimtest.
#include "core/codec.h"

// Form of a reply of each type, unless it is an error or a notice.
static const struct {
    uint16_t type;
    uint16_t body; // bytes of its body
    bool waits;    // true: the daemon may first answer that the request waits
    bool text;     // true: text follows the body
} replies[] = {
    {GA_TYPE_HELLO, sizeof(struct ga_wire_hello_reply), true, false},
    {GA_TYPE_RESUME, sizeof(struct ga_wire_hello_reply), false, false},
    {GA_TYPE_JOIN, 0, false, false},
    {GA_TYPE_BYE, 0, false, false},
    {GA_TYPE_OBJECTS, 0, false, false},
    {GA_TYPE_COPIES, 0, false, false},
    {GA_TYPE_JOB_CLOSE, 0, false, false},
    {GA_TYPE_LIMIT, 0, false, false},
    {GA_TYPE_CGROUP, 0, false, false},
    {GA_TYPE_ATTACH, sizeof(struct ga_wire_attach_reply), false, false},
    {GA_TYPE_ALLOC, sizeof(struct ga_wire_alloc_reply), true, false},
    {GA_TYPE_STREAM, sizeof(struct ga_wire_stream_reply), true, false},
    {GA_TYPE_CONTEXT, sizeof(struct ga_wire_context_reply), true, false},
    {GA_TYPE_QUERY, sizeof(struct ga_wire_query_reply), false, false},
    {GA_TYPE_ROOM, sizeof(struct ga_wire_room_reply), false, false},
    {GA_TYPE_DRIVER, sizeof(struct ga_wire_driver_reply), false, false},
    {GA_TYPE_JOB_OPEN, sizeof(struct ga_wire_job_open_reply), true, false},
    {GA_TYPE_SNAPSHOT, sizeof(struct ga_wire_snapshot_part), false, true},
    {GA_TYPE_METRICS, sizeof(struct ga_wire_snapshot_part), false, true},
    {GA_TYPE_EVENTS, sizeof(struct ga_wire_events_part), false, true},
    {GA_TYPE_CANCEL, sizeof(struct ga_wire_cancel_reply), false, false},
    {GA_TYPE_BESIDE, sizeof(struct ga_wire_beside_reply), false, false},
    {GA_TYPE_JOB_TALLY, sizeof(struct ga_wire_job_tally_reply), false, false},
    {GA_TYPE_WARNINGS, sizeof(struct ga_wire_warnings_reply), false, false},
    {GA_TYPE_EXITED, 0, false, false},
    {GA_TYPE_ACCOUNT, sizeof(struct ga_wire_account_reply), false, false},
    {GA_TYPE_BIND, sizeof(struct ga_wire_job_open_reply), true, false},
    {GA_TYPE_UNBIND, sizeof(struct ga_wire_account_reply), false, false},
    {GA_TYPE_SUSPEND, 0, false, false},
};
#define REPLIES (sizeof replies / sizeof *replies)

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
    size_t i = 0;
    while (i < REPLIES && replies[i].type != type)
        i++;
    if (i == REPLIES)
        return false;
    if (header->status == GA_STATUS_WAITING)
        return replies[i].waits && got == sizeof(struct ga_wire_waiting_reply);
    // A session that policy refuses: the reply is an error, because Hello's body has no field for
    // the reason.
    if ((type == GA_TYPE_HELLO || type == GA_TYPE_RESUME) && header->status != GA_STATUS_OK &&
        got == sizeof(struct ga_wire_error_reply))
        return true;
    return replies[i].text ? got >= replies[i].body : got == replies[i].body;
}
