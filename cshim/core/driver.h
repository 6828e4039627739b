// SPDX-License-Identifier: Apache-2.0
// Drivers that compute on the processor. The configuration may say on which device of the daemon
// such a driver is counted; otherwise it is the processor. The interfaces ask here before they
// number such a device (device.h). root.drivers holds the answers, under devices_lock.
#ifndef GA_DRIVER_H
#define GA_DRIVER_H

#include "core/root.h"

// Identity of the processor, which has no UUID. The daemon's inventory uses the same bytes.
extern const uint8_t ga_driver_processor[GA_UUID_SIZE];

// Writes the identity of the device on which a driver is counted. name: the driver's name in the
// configuration; NULL: it has none there. The answer of the first daemon holds for the whole life
// of the process. False: no daemon has answered yet; the identity written is that of the processor.
bool ga_driver_device(struct ga_root *root, const char *name, uint8_t device[GA_UUID_SIZE]);

#endif
