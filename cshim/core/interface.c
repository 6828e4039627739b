// SPDX-License-Identifier: Apache-2.0
// List of the interfaces that this process uses, and the calls that go to all of them.
#include "core/interface.h"

// Interfaces that have joined. A forked child has the same interfaces, so fork does not wipe the
// list. It has no lock, because a child might inherit the lock in a locked state. A place in the
// list is filled once, and never emptied.
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

bool ga_interface_keeps_freed(void) {
    for (size_t i = 0; i < GA_INTERFACES; i++) {
        const struct ga_interface *interface = atomic_load(&joined[i]);
        if (interface && interface->keeps_freed && interface->keeps_freed())
            return true;
    }
    return false;
}
