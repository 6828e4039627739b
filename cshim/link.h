// SPDX-License-Identifier: Apache-2.0
// Opening the link to the daemon: Hello for a new session, Resume for one that
// lost its daemon or began without one.
#ifndef GA_LINK_H
#define GA_LINK_H

#include "session.h"

// One attempt; the caller holds root->linking. True: root->link is live.
bool ga_link_open(struct ga_root *root);
// A further connection of the session, by Join; −1 when there is none to be had. *gone: the
// daemon does not know the session any more.
int ga_link_join(struct ga_root *root, bool *gone);

// True when the process holds something that is charged under the present tag.
bool ga_link_holds(struct ga_root *root);

#endif
