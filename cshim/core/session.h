// SPDX-License-Identifier: Apache-2.0
// The session with the daemon: found, opened, kept over the daemon's restarts.
#ifndef GA_SESSION_H
#define GA_SESSION_H

#include "core/message.h"
#include "core/objects.h"
#include "core/root.h"

// What to do with a request.
enum ga_way {
    GA_WAY_ASK = 0,     // there is a session
    GA_WAY_OPEN = 1,    // no daemon: go on without
    GA_WAY_CLOSED = 2,  // no daemon: refuse
    GA_WAY_REFUSED = 3, // there is one, which refused to open the session: so is the request
};

// Makes sure that there is a session, or says what the policy is. Cheap when there is one,
// and (at most one attempt a second) when there is none.
enum ga_way ga_session_ensure(struct ga_root *root);
// The same, and the lease on the device is open: view->slot[device] is not 0.
enum ga_way ga_session_attach(struct ga_root *root, uint32_t device);
// Whether the daemon that there is has no such device. It is asked for the lease.
bool ga_session_lacks(struct ga_root *root, uint32_t device);

// Sends a request and waits for its reply, over the daemon's death if need be: then it is sent
// again with the same number, and with GA_FLAG_RETRY. Only GA_WAY_ASK leaves a reply. With a
// device ≥ 0 its lease is opened first, and its slot is written into the body's first word each
// time. A daemon that does not answer within GA_REPLY_MS counts as gone; once it has answered that
// the request waits, there is no such limit.
enum ga_way ga_session_ask(struct ga_root *root, uint16_t type, int device, void *body, size_t size,
                           struct ga_reply *reply);
// Gives back objects of the session that they are counted in (tag); nothing, where that is over.
// Waits for its reply, not for anything else.
void ga_session_give(struct ga_root *root, enum ga_object what, uint32_t device, int32_t count,
                     uint32_t maker, uint16_t tag);
// Tells the daemon that a free saw NOTIFY in the credit word of a slot. Waits for nothing but a
// connection.
void ga_session_freed(struct ga_root *root, uint32_t slot);
// Takes retains, or the use (0), from the hold that has this key in root->holds (hold.h), and gives
// the hold back after the last of them. False: it has none.
bool ga_session_return_hold(struct ga_root *root, uint64_t key, uint64_t retains);

#endif
