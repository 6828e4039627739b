// SPDX-License-Identifier: Apache-2.0
// Assigns the numbers of devices, under root.devices_lock. Lookups take no lock, because a device
// that is known never changes.
#include "core/device.h"

#include "core/log.h"

bool ga_device_same(const uint8_t a[GA_UUID_SIZE], const uint8_t b[GA_UUID_SIZE]) {
    uint64_t words[2][GA_UUID_SIZE / sizeof(uint64_t)];
    __builtin_memcpy(words[0], a, GA_UUID_SIZE);
    __builtin_memcpy(words[1], b, GA_UUID_SIZE);
    return words[0][0] == words[1][0] && words[0][1] == words[1][1];
}

int ga_device_find(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE]) {
    for (uint32_t d = 0; d < GA_DEVICES && atomic_load(&root->devices[d].known); d++)
        if (ga_device_same(root->devices[d].uuid, uuid))
            return (int)d;
    return -1;
}

int ga_device_number(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE]) {
    uint32_t next = 0;
    ga_self_lock(&root->devices_lock);
    int number = ga_device_find(root, uuid);
    while (next < GA_DEVICES && atomic_load(&root->devices[next].known))
        next++;
    if (number < 0 && next < GA_DEVICES) {
        ga_os_copy(root->devices[next].uuid, uuid, GA_UUID_SIZE);
        atomic_store(&root->devices[next].known, 1);
        number = (int)next;
    }
    ga_self_unlock(&root->devices_lock);
    if (number < 0)
        ga_device_unheld();
    return number;
}

void ga_device_unheld(void) {
    static _Atomic uint32_t told;
    if (!atomic_exchange(&told, 1))
        ga_log_user("this program uses more than %u devices: it is not limited on the others, and "
                    "memory that it takes there counts against no budget; let it see fewer devices",
                    (uint64_t)GA_DEVICES);
}

void ga_device_declare(struct ga_root *root, uint32_t device, uint64_t total) {
    uint64_t most = root->env.hello.memory;
    uint64_t mill = root->env.hello.share;
    if (mill != 0 && total != 0)
        most = total / 1000 * mill + total % 1000 * mill / 1000;
    if (most != GA_NO_LIMIT)
        atomic_store(&root->declared[device], most + 1);
}
