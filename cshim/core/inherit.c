// SPDX-License-Identifier: Apache-2.0
#include "core/inherit.h"

// What descriptors this process holds, outside of the wiped root, so that a child can close the
// copies that it inherited. A record is only ever acted upon when the identity fits: a number that
// the program has closed may be another connection's by now, which has a record of its own.
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
