// SPDX-License-Identifier: Apache-2.0
// Static table of descriptors. It needs no lock: each field is atomic, and a slot is claimed by a
// swap.
#include "core/inherit.h"

// Descriptors of this process. The table lies outside of the root, which fork wipes, so that a
// child can close its inherited copies. A descriptor is closed only if its identity matches. If the
// program has closed a number, it may belong to another connection by now, which has an entry of
// its own.
struct inherited {
    _Atomic int fd_plus_1;
    _Atomic uint64_t dev, ino;
};
static struct inherited table[GA_INHERIT_MAX];

void ga_inherit_note(int fd, const struct ga_os_identity *id) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int free = 0;
        if (atomic_compare_exchange_strong(&table[i].fd_plus_1, &free, -1)) {
            atomic_store(&table[i].dev, id->dev);
            atomic_store(&table[i].ino, id->ino);
            atomic_store(&table[i].fd_plus_1, fd + 1);
            return;
        }
    }
}

void ga_inherit_drop(int fd, const struct ga_os_identity *id) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int mine = fd + 1;
        if (atomic_load(&table[i].fd_plus_1) == mine && atomic_load(&table[i].ino) == id->ino &&
            atomic_load(&table[i].dev) == id->dev &&
            atomic_compare_exchange_strong(&table[i].fd_plus_1, &mine, 0))
            return;
    }
}

void ga_inherit_close(void) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int fd = atomic_load(&table[i].fd_plus_1) - 1;
        struct ga_os_identity id = {atomic_load(&table[i].dev), atomic_load(&table[i].ino)};
        if (fd >= 0 && ga_os_is(fd, &id))
            ga_os_close(fd);
        atomic_store(&table[i].fd_plus_1, 0);
    }
}
