// SPDX-License-Identifier: Apache-2.0
// What is counted and is no bytes: contexts, streams, and holds on shared contexts, by the thread
// that made them where slots are threads', as the daemon counts them. admit.c asks for them,
// session.c gives them back, and link.c tells a daemon that takes the session up what there is.
//
// A count changes between ga_move_begin and ga_move_end, with the look at the link by which the
// daemon answered or is told. So the sums of a Resume hold what the answers of its link gave and
// what its messages have given back, whether those came to be read or not; and an answer that
// comes later by a link that is over counts nothing.
#ifndef GA_OBJECTS_H
#define GA_OBJECTS_H

#include "core/root.h"

enum ga_object { GA_OBJECT_CONTEXT, GA_OBJECT_STREAM, GA_OBJECT_HOLD };

// Counts objects of this session that there are now, or no more (count < 0). Inside a move.
void ga_objects_add(struct ga_root *root, enum ga_object what, uint32_t device, uint32_t maker,
                    int32_t count);

// The request that asks for objects, or gives them back, and its type: a stream's is laid out
// alike.
struct ga_wire_context_request ga_objects_request(enum ga_object what, int32_t count,
                                                  uint32_t flags, uint32_t maker);
uint16_t ga_objects_type(enum ga_object what);

// Of this session, of a device; no move is under way.
struct ga_objects_sum {
    uint32_t contexts, streams;
};
struct ga_objects_sum ga_objects_sum(struct ga_root *root, uint32_t device);
// The entries of a device behind the first so many. One thread may have two: they add up.
void ga_objects_list(struct ga_root *root, uint32_t device, uint32_t skip,
                     struct ga_wire_objects_request *list);

#endif
