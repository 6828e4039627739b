// SPDX-License-Identifier: Apache-2.0
// Opening the link to the daemon: Hello for a new session, Resume for one that
// lost its daemon or began without one.
#ifndef GA_LINK_H
#define GA_LINK_H

#include "core/message.h"
#include "core/wait.h"

// root->linking, which passes on when its holder dies.
void ga_link_lock(struct ga_root *root);
bool ga_link_try_lock(struct ga_root *root);
void ga_link_unlock(struct ga_root *root);

// One attempt, which may wait for what the session reserves; the caller holds root->linking.
// True: root->link is live.
bool ga_link_open(struct ga_root *root, ga_look *look);
// Notes that the daemon did not answer within GA_REPLY_MS, and sends it a question. Until the
// daemon answers that, ga_link_open returns false at once. The caller holds root->linking.
void ga_link_note_silence(struct ga_root *root);
// Reports whether the daemon was noted to be silent, and no answer was seen since.
bool ga_link_is_silent(const struct ga_root *root);
// While root->busy says so: whether it is worth another attempt.
bool ga_link_is_asked_again(const struct ga_root *root, uint64_t now);
// A further connection of the session, by Join, for a connection that is not open. Its descriptor;
// −EAGAIN when the session may have no more, −EBUSY when none can be made or the daemon has no room
// for one, −1 when the daemon is gone or does not know the session.
int ga_link_join(struct ga_root *root, struct ga_connection *connection);

// The bytes of a device that it is charged with.
uint64_t ga_link_used(struct ga_root *root, uint32_t device);

#endif
