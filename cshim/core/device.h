// SPDX-License-Identifier: Apache-2.0
// Numbers of devices in this process. A device gets the next number when an interface first names
// it by its UUID, and keeps the number. All interfaces that reach a device get the same number, and
// so the same lease, whatever index each uses for the device itself.
#ifndef GA_DEVICE_NUMBERS_H
#define GA_DEVICE_NUMBERS_H

#include "core/root.h"

// Reports whether two UUIDs are equal.
bool ga_device_same(const uint8_t a[GA_UUID_SIZE], const uint8_t b[GA_UUID_SIZE]);
// Returns the number of a device; −1: it has none yet.
int ga_device_find(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE]);
// Returns the number of a device, and assigns one if needed. −1: there are more devices than can be
// arbitrated, and the user was told (ga_device_unheld).
int ga_device_number(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE]);
// Tells the user, once in a process, that the program uses a device without a number, on which it
// is not limited.
void ga_device_unheld(void);
// Records the most that the program's environment lets it use of a device, with or without a
// daemon. total: memory of the device in bytes; 0: not known, so that a limit given as a share has
// no effect.
void ga_device_declare(struct ga_root *root, uint32_t device, uint64_t total);

#endif
