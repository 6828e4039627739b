// SPDX-License-Identifier: Apache-2.0
// Asks the daemon for the device of a driver, and keeps the answers in root.drivers.
#include "core/driver.h"

#include "core/device.h"
#include "core/session.h"

const uint8_t ga_driver_processor[GA_UUID_SIZE] = {'g', 'p', 'u', 'a', 'r', 'b', ':', 'p',
                                                   'r', 'o', 'c', 'e', 's', 's', 'o', 'r'};

static bool find(struct ga_root *root, const uint8_t name[GA_UUID_SIZE],
                 uint8_t device[GA_UUID_SIZE]) {
    for (size_t i = 0; i < GA_DRIVERS && atomic_load(&root->drivers[i].known); i++)
        if (ga_device_same(root->drivers[i].name, name)) {
            ga_os_copy(device, root->drivers[i].device, GA_UUID_SIZE);
            return true;
        }
    return false;
}

// Stores an answer. If several threads asked at once, the first answer stays.
static void store(struct ga_root *root, const uint8_t name[GA_UUID_SIZE],
                  uint8_t device[GA_UUID_SIZE]) {
    size_t next = 0;
    ga_self_lock(&root->devices_lock);
    while (next < GA_DRIVERS && atomic_load(&root->drivers[next].known))
        next++;
    if (!find(root, name, device) && next < GA_DRIVERS) {
        ga_os_copy(root->drivers[next].name, name, GA_UUID_SIZE);
        ga_os_copy(root->drivers[next].device, device, GA_UUID_SIZE);
        atomic_store(&root->drivers[next].known, 1);
    }
    ga_self_unlock(&root->devices_lock);
}

// Asks the daemon. False: no answer came.
static bool ask(struct ga_root *root, const uint8_t name[GA_UUID_SIZE],
                uint8_t device[GA_UUID_SIZE]) {
    struct ga_wire_driver_request request;
    struct ga_reply reply = {.request = 0};
    ga_os_copy(request.name, name, sizeof request.name);
    enum ga_way way = ga_session_ask(root, GA_TYPE_DRIVER, -1, &request, sizeof request, &reply);
    if (way != GA_WAY_ASK || reply.header.status != GA_STATUS_OK ||
        !ga_message_fits(&reply, sizeof reply.body.driver))
        return false;
    ga_os_copy(device, reply.body.driver.device, GA_UUID_SIZE);
    return true;
}

bool ga_driver_device(struct ga_root *root, const char *name, uint8_t device[GA_UUID_SIZE]) {
    uint8_t padded[GA_UUID_SIZE] = {0};
    ga_os_copy(device, ga_driver_processor, GA_UUID_SIZE);
    for (size_t i = 0; name && name[i] && i < GA_UUID_SIZE; i++)
        padded[i] = (uint8_t)name[i];
    if (!name || find(root, padded, device))
        return true;
    // An older daemon counts all such drivers on the processor.
    if (ga_session_ensure(root) != GA_WAY_ASK ||
        (atomic_load(&root->able) & GA_ABLE_DRIVER && !ask(root, padded, device)))
        return false;
    store(root, padded, device);
    return true;
}
