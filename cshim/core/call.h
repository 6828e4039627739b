// SPDX-License-Identifier: Apache-2.0
// State of one request while it is sent in one or more attempts. session.c sends the request, and
// is the only caller.
#ifndef GA_CALL_H
#define GA_CALL_H

#include "core/connection.h"
#include "core/message.h"
#include "core/root.h"

// Request that is sent in one or more attempts, until its reply is final.
struct ga_call {
    uint16_t type;
    int device;
    void *body;
    size_t size;
    struct ga_reply *reply;
    uint32_t *flags;   // flags in the body; NULL: this type of request has none
    bool waits;        // the daemon may let the request wait
    bool aside;        // this attempt must not wait, because all connections to wait on are in use
    bool looked;       // true: the process was searched for an allocator with a cache
    bool caches;       // true: that search has found one
    uint64_t first_ms; // when the request first found the queue full; 0: it has not
    uint64_t until_ms; // when it must be given up after that; 0: never
    uint32_t asked_in; // tag of the session to which an attempt was sent; 0: none
    bool releases;     // true: the request reports destroyed objects
    uint32_t released_in;   // epoch of the link when this process stopped counting these objects
    int quick_failures;     // attempts in a row that failed at once
    uint64_t no_room_since; // when no connection could first be opened; 0: one could
};

// Reports whether a reply is final. A daemon that stops, or that does not know the session, has not
// decided the request.
bool ga_call_is_final(const struct ga_reply *reply);
// Sets the fields `flags` and `waits` by the type and the body of the request.
void ga_call_classify(struct ga_call *a);
// Counts an attempt that got no connection. If the daemon has no room for one more, counts it only
// after ROOM_MS, and pauses; if other connections must do (−EBUSY), only pauses.
void ga_call_count_failure(struct ga_call *a, int error);
// Writes the slot of the device's lease into the body, and the tag of the session into the reply.
void ga_call_address(struct ga_root *root, struct ga_call *a);
// Returns the flags of an attempt. A daemon of an earlier version does not know GA_FLAG_ASIDE: it
// gets GA_FLAG_NO_WAIT instead, and refuses a request that would have to wait. If ga_call_look has
// still to look, GA_FLAG_ASIDE makes the daemon say first whether the request would wait.
uint32_t ga_call_flags(struct ga_root *root, const struct ga_call *a);
// Searches the process for an allocator with a cache, because the daemon has answered that the
// request would wait. The daemon decides by the result whether to refuse it first. True: the
// request must be sent again. False: the process was searched before, or the result does not
// matter.
bool ga_call_look(struct ga_root *root, struct ga_call *a);
// Reports whether the daemon knows already that the objects were destroyed. This is so if the
// connection belongs to a later link, whose opening message did not count these objects.
bool ga_call_is_reported(struct ga_root *root, const struct ga_connection *connection,
                         const struct ga_call *a);
// Reports whether the request may wait, but found no place in the queue, or found it too late.
bool ga_call_is_crowded(const struct ga_call *a);
// Returns how long the daemon lets the request wait, in ms (UINT64_MAX: no limit). *text: the
// daemon's line about that for the user.
uint64_t ga_call_read_crowded(const struct ga_call *a, const uint8_t **text);

#endif
