// SPDX-License-Identifier: Apache-2.0
// The session of a process with the daemon. These functions find the daemon, open the session, send
// requests, and resume the session after the daemon has restarted. connection.h has the
// connections; link.h the messages that open and resume a session; wait.h the wait for a reply.
#ifndef GA_SESSION_H
#define GA_SESSION_H

#include "core/message.h"
#include "core/objects.h"
#include "core/root.h"

// How the caller must answer a request of the program.
enum ga_way {
    GA_WAY_ASK = 0,     // there is a session: as the daemon answers
    GA_WAY_OPEN = 1,    // there is no daemon, and the policy is to go on without limits: grant
    GA_WAY_CLOSED = 2,  // there is no daemon, and the policy is to refuse: refuse
    GA_WAY_REFUSED = 3, // refuse: the daemon opens no session or lease, or a limit in the
                        // environment is malformed
};

// Opens a session if there is none. If that fails, returns what the policy says. At most one
// attempt is made in a second; in between the call is cheap.
enum ga_way ga_session_ensure(struct ga_root *root);
// Does what ga_session_ensure does, and opens the lease on a device: if it returns GA_WAY_ASK,
// view->slot[device] is not 0.
enum ga_way ga_session_attach(struct ga_root *root, uint32_t device);
// Reports whether the daemon does not know a device. It may open the lease on the device to find
// out.
bool ga_session_lacks(struct ga_root *root, uint32_t device);

// Sends a request and waits for its reply. If the connection breaks, sends the request again with
// the same number and with GA_FLAG_RETRY, to the restarted daemon if need be. *reply is valid only
// if it returns GA_WAY_ASK. device: number, or −1. If it is not −1, the lease on the device is
// opened first, and the lease's slot is written into the first word of the body at each attempt. A
// daemon that does not answer within GA_REPLY_MS counts as gone. If it answers that the request
// waits, there is no limit any more.
enum ga_way ga_session_ask(struct ga_root *root, uint16_t type, int device, void *body, size_t size,
                           struct ga_reply *reply);
// Tells the daemon that objects (contexts, streams, holds) were destroyed, and waits for the reply.
// tag: the session in which they are counted; if that session has ended, does nothing.
void ga_session_release(struct ga_root *root, enum ga_object what, uint32_t device, int32_t count,
                        uint32_t maker, uint16_t tag);
// Tells the daemon that a free found the flag NOTIFY in the credit word of a slot: another job
// waits for bytes. Does not wait for a reply, but may wait for a connection.
void ga_session_freed(struct ga_root *root, uint32_t slot);
// Subtracts retains from the thread slot that has a key in root->thread_slots (thread_slot.h);
// retains 0: ends its use instead. If neither retains nor a use are left, gives the slot back to
// the daemon. False: the slot had no retains, or no use.
bool ga_session_release_thread_slot(struct ga_root *root, uint64_t key, uint64_t retains);

#endif
