// SPDX-License-Identifier: Apache-2.0
// Lanes: the connections of a session. A thread that sends a request has a lane to itself until the
// reply has come. So no thread waits behind another thread's admission, and each thread notices
// when the daemon dies.
#ifndef GA_LANE_H
#define GA_LANE_H

#include "core/root.h"

// Returns a lane for the calling thread, and waits while all are in use. The lane may be
// unconnected.
struct ga_lane *ga_lane_take(struct ga_root *root);
// Returns a lane for a request that may wait for admission. The last few lanes are not for such
// requests: however many wait, a thread that gives something back finds a lane. NULL: none is free.
struct ga_lane *ga_lane_take_to_wait(struct ga_root *root);
// Ends the calling thread's use of a lane.
void ga_lane_give(struct ga_root *root, struct ga_lane *lane);

// Returns the descriptor of a lane. −1: the lane has none, its connection belongs to an earlier
// link, or the program has closed the descriptor: then another file may have its number, to which
// nothing must be written. The caller must have taken the lane, as for the next two.
int ga_lane_fd(struct ga_root *root, struct ga_lane *lane);
// Sets the descriptor of a lane; −1: none. Closes the one before, unless the program has closed it.
void ga_lane_set(struct ga_lane *lane, int fd);

// Moves the connection of a lane to a lane that has none.
void ga_lane_move(struct ga_lane *to, struct ga_lane *from);

#endif
