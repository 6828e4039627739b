// SPDX-License-Identifier: Apache-2.0
// Devices, as this process numbers them: each has the next number when an interface first names it
// by its UUID, and keeps it. Every interface that reaches a device finds the same number, and with
// it the same lease, whatever number it has for the device itself.
#ifndef GA_DEVICE_NUMBERS_H
#define GA_DEVICE_NUMBERS_H

#include "core/root.h"

bool ga_device_same(const uint8_t a[GA_UUID_SIZE], const uint8_t b[GA_UUID_SIZE]);
// The number of a device; −1: nobody has named it.
int ga_device_find(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE]);
// The same, and it has one from now on; −1: there are more devices than can be arbitrated.
int ga_device_number(struct ga_root *root, const uint8_t uuid[GA_UUID_SIZE]);
// What the program wants to have of it at most, whatever a daemon says. total: its memory; 0: not
// known, so that a share of it says nothing.
void ga_device_declare(struct ga_root *root, uint32_t device, uint64_t total);

#endif
