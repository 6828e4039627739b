// SPDX-License-Identifier: Apache-2.0
#include "wait.h"

#include <errno.h>

#include "admit.h"
#include "lane.h"
#include "log.h"

#define LOOK_MS 100 // how often a thread that waits looks after what is its process's own
#define BURY_EVERY 10

// Tells what is waited for: under gpuarb run the user hears of each change, else of the first wait.
static void tell(struct ga_root *root, const struct ga_reply *reply, uint8_t told[GA_TEXT_SIZE]) {
    const uint8_t *text = reply->body.waiting.text;
    size_t i = 0;
    if (!ga_session_fits(reply, sizeof reply->body.waiting))
        return;
    while (i < GA_TEXT_SIZE && text[i] == told[i] && text[i])
        i++;
    if (i == GA_TEXT_SIZE || text[i] == told[i])
        return;
    ga_os_copy(told, text, GA_TEXT_SIZE);
    if (root->env.in_job || atomic_exchange(&root->told_wait, 1) == 0)
        ga_log_text(told, GA_TEXT_SIZE);
    told[GA_TEXT_SIZE - 1] = '\0';
    ga_log("%s", (const char *)told);
}

// Bytes of its own that have come back nobody else can find, and they may be what it waits for; so
// may be what its pools keep.
static void look(struct ga_root *root, uint32_t looks) {
    if (ga_self.thread)
        atomic_fetch_add(&ga_self.thread->looks, 1);
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        ga_admit_reap(root, d, UINT64_MAX);
    if (looks % BURY_EVERY == 0)
        ga_session_bury(root);
}

static GA_NOINLINE int wait_on(struct ga_root *root, int fd, const struct ga_os_identity *id,
                               uint16_t type, uint64_t request, struct ga_reply *reply, int error,
                               bool limited, bool *waited) {
    uint8_t told[GA_TEXT_SIZE] = {0};
    for (uint32_t looks = 1;; looks++) {
        if (error == 0 && reply->header.status != GA_STATUS_WAITING)
            return 0;
        if (error == 0) {
            if (reply->fd >= 0)
                ga_os_close(reply->fd);
            *waited = true;
            tell(root, reply, told);
        } else if (error != -ETIMEDOUT || (limited && !*waited)) {
            return error;
        } else {
            look(root, looks);
        }
        error = ga_lane_receive(fd, id, type, request, reply, LOOK_MS);
    }
}

int ga_wait_for_reply(struct ga_root *root, int fd, const struct ga_os_identity *id, uint16_t type,
                      uint64_t request, struct ga_reply *reply, int timeout_ms, bool *waited) {
    bool limited = timeout_ms >= 0;
    int error = ga_lane_receive(fd, id, type, request, reply, limited ? timeout_ms : LOOK_MS);
    *waited = false;
    if (GA_LIKELY(error == 0 && reply->header.status != GA_STATUS_WAITING))
        return 0;
    return wait_on(root, fd, id, type, request, reply, error, limited, waited);
}
