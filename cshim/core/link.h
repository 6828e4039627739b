// SPDX-License-Identifier: Apache-2.0
// Opening the link to the daemon. Hello opens a new session. Resume continues a session that lost
// its daemon or began without a daemon. session.c calls these functions; wait.c exchanges the
// messages. Mutex: root->linking, which guards the fields of ga_root up to next_request.
#ifndef GA_LINK_H
#define GA_LINK_H

#include "core/message.h"
#include "core/wait.h"

// Locks root->linking. If its holder dies, the next thread gets it.
void ga_link_lock(struct ga_root *root);
bool ga_link_try_lock(struct ga_root *root);
void ga_link_unlock(struct ga_root *root);

// Tries once to open the link, and may wait for what the session reserves. The caller holds
// root->linking. True: root->link is live.
bool ga_link_open(struct ga_root *root, ga_wait_tick *tick);
// Notes that the daemon did not answer within GA_REPLY_MS, and sends it a test request. Until the
// daemon answers that, ga_link_open returns false at once. The caller holds root->linking.
void ga_link_note_silence(struct ga_root *root);
// Reports whether the daemon was noted to be silent, and no answer was seen since.
bool ga_link_is_silent(const struct ga_root *root);
// Reports whether another attempt is due while root->busy is set. now: ga_os_now_ms.
bool ga_link_is_asked_again(const struct ga_root *root, uint64_t now);
// Opens one more connection of the session, by Join. Returns its descriptor. −EAGAIN: the session
// may have no more. −EBUSY: none can be made, or the daemon has no room for one. −1: the daemon is
// gone or does not know the session.
int ga_link_join(struct ga_root *root, struct ga_connection *connection);

// Returns the bytes of a device that are charged to this process.
uint64_t ga_link_used(struct ga_root *root, uint32_t device);

#endif
