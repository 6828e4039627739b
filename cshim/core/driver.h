// SPDX-License-Identifier: Apache-2.0
// Drivers that compute on the processor, and on which device of the daemon's each is counted: the
// processor, or another one where the configuration says so. The interfaces ask here before they
// number such a device (device.h).
#ifndef GA_DRIVER_H
#define GA_DRIVER_H

#include "core/root.h"

// The processor's identity: it has no UUID. In the daemon, inventory knows it by the same bytes.
extern const uint8_t ga_driver_processor[GA_UUID_SIZE];

// The identity of the device on which a driver is counted. name: what the configuration calls the
// driver, or NULL for one that it has no word for. The first daemon that the process finds decides,
// for as long as it lives: true. Without one it is the processor.
bool ga_driver_device(struct ga_root *root, const char *name, uint8_t device[GA_UUID_SIZE]);

#endif
