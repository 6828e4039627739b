// SPDX-License-Identifier: Apache-2.0
// Counts of contexts, streams, and holds, which are slots of threads on contexts of other threads.
// They are counted by thread where the daemon counts slots by thread. admit.c requests objects,
// session.c gives them back, and link.c reports them to a daemon that resumes the session. Lock:
// root.objects_lock.
//
// A count changes between ga_move_begin and ga_move_end, together with a check of the link's epoch.
// So the sums in a Resume contain all answers of earlier links and all releases sent on them. An
// answer that arrives after its link has ended counts nothing.
#ifndef GA_OBJECTS_H
#define GA_OBJECTS_H

#include "core/root.h"

enum ga_object { GA_OBJECT_CONTEXT, GA_OBJECT_STREAM, GA_OBJECT_THREAD_SLOT };

// Adds objects to the counts of this session; count < 0: subtracts. Must be called inside a move.
void ga_objects_add(struct ga_root *root, enum ga_object what, uint32_t device, uint32_t maker,
                    int32_t count);

// Returns the request that acquires objects (count > 0) or gives them back, and the type of that
// request.
struct ga_wire_context_request ga_objects_request(enum ga_object what, int32_t count,
                                                  uint32_t flags, uint32_t maker);
uint16_t ga_objects_type(enum ga_object what);

// Sums of a device in this session. Must be called while moves are frozen.
struct ga_objects_sum {
    uint32_t contexts, streams;
};
struct ga_objects_sum ga_objects_sum(struct ga_root *root, uint32_t device);
// Fills in the entries of a device after the first `skip`. A thread may have two entries, which add
// up.
void ga_objects_list(struct ga_root *root, uint32_t device, uint32_t skip,
                     struct ga_wire_objects_request *list);

#endif
