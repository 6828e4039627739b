// SPDX-License-Identifier: Apache-2.0
#include "core/interface.h"

// Facts about the process, the same in a forked child. Without a lock, which a child might find
// taken: a place is given once, and those before it stay.
static _Atomic(struct ga_interface *) joined[GA_INTERFACES];

void ga_interface_join(struct ga_interface *interface) {
    for (size_t i = 0; i < GA_INTERFACES; i++) {
        struct ga_interface *there = NULL;
        if (atomic_compare_exchange_strong(&joined[i], &there, interface) || there == interface)
            return;
    }
}

uint64_t ga_interface_reap(struct ga_root *root, uint32_t device, uint64_t wanted) {
    uint64_t got = 0;
    if (ga_root_pending(root, device) == 0)
        return 0;
    for (size_t i = 0; i < GA_INTERFACES; i++) {
        const struct ga_interface *interface = atomic_load(&joined[i]);
        if (interface && interface->reap)
            got += interface->reap(root, device, wanted > got ? wanted - got : 0);
    }
    return got;
}
