// SPDX-License-Identifier: Apache-2.0
// Waiting for a reply that may be long in coming: the daemon says that the request waits, and
// for what, and the thread stays on its connection until the reply itself comes.
#ifndef GA_WAIT_H
#define GA_WAIT_H

#include "session.h"

// Until the daemon says that the request waits, the reply has timeout_ms (−1: as long as it
// takes); from then on it has no limit. id is what the descriptor is: −EPIPE when the program has
// closed it meanwhile. *waited: set when the daemon said so. Errors as of ga_lane_receive.
int ga_wait_for_reply(struct ga_root *root, int fd, const struct ga_os_identity *id, uint16_t type,
                      uint64_t request, struct ga_reply *reply, int timeout_ms, bool *waited);

#endif
