// SPDX-License-Identifier: Apache-2.0
// Lanes: the connections of a session. Each thread that asks has one to itself
// while it does, so that nobody waits behind somebody else's admission, and so
// that the death of the daemon reaches every thread.
#ifndef GA_LANE_H
#define GA_LANE_H

#include "core/root.h"

// A lane of one's own; waits, holding nothing, while all are taken. It may not be connected.
struct ga_lane *ga_lane_take(struct ga_root *root);
// The same for a request that may wait for admission, which must not have the last few: however
// many wait, a thread that gives something back finds one. NULL: there is none now.
struct ga_lane *ga_lane_take_to_wait(struct ga_root *root);
void ga_lane_give(struct ga_root *root, struct ga_lane *lane);

// Its descriptor, or −1 when it has none, belongs to an earlier link, or the program closed it
// (a number that is somebody else's now is never written to). Owner only.
int ga_lane_fd(struct ga_root *root, struct ga_lane *lane);
// Gives it a descriptor, or takes it away (−1). What it had is closed if it still is ours.
void ga_lane_set(struct ga_lane *lane, int fd);

// Hands the connection of one lane to another that has none. The caller owns both.
void ga_lane_move(struct ga_lane *to, struct ga_lane *from);

#endif
