// SPDX-License-Identifier: Apache-2.0
// Drivers that compute on the processor: on which device what they take is counted.
#ifndef GA_DRIVER_H
#define GA_DRIVER_H

#include "core/root.h"

// The processor has no UUID; it goes by this one on every machine.
extern const uint8_t ga_driver_processor[GA_UUID_SIZE];

// The identity of the device that a driver is counted on, by what the configuration calls it; NULL:
// it has no word for it.
void ga_driver_device(struct ga_root *root, const char *driver, uint8_t device[GA_UUID_SIZE]);

#endif
