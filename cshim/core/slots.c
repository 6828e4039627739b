// SPDX-License-Identifier: Apache-2.0
// Acquires and releases the slots, in the order of the devices' numbers.
#include "core/slots.h"

#include "core/admit.h"
#include "core/publish.h"

void ga_slots_release(struct ga_root *root, const struct ga_slots *s) {
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (s->has[d])
            ga_admit_return(root, GA_OBJECT_CONTEXT, d, 1, s->maker, s->tag[d]);
}

bool ga_slots_any(const struct ga_slots *s) {
    bool any = false;
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        any |= s->has[d];
    return any;
}

void ga_slots_made(struct ga_root *root, const struct ga_slots *s) {
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (s->has[d])
            ga_publish_context_end(root, d);
}

// Acquires in the order of the numbers. So two programs that want the same devices do not each wait
// for a slot that the other one has.
bool ga_slots_acquire(struct ga_root *root, struct ga_slots *s, const bool wanted[GA_DEVICES]) {
    *s = (struct ga_slots){.maker = ga_self.number, .full = s->full};
    for (uint32_t d = 0; d < GA_DEVICES; d++) {
        if (!wanted[d])
            continue;
        ga_publish_context_begin(root, d);
        s->has[d] = ga_admit_object(root, GA_OBJECT_CONTEXT, d, s->full, &s->tag[d]);
        if (s->has[d])
            continue;
        ga_publish_context_end(root, d);
        ga_slots_release(root, s);
        ga_slots_made(root, s);
        return false;
    }
    return true;
}
