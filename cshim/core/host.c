// SPDX-License-Identifier: Apache-2.0
// Counts page-locked host memory in root.host_held, by atomic operations alone.
#include "core/host.h"

#include "core/log.h"
#include "core/publish.h"
#include "core/session.h"

// Returns the smaller of the daemon's limit and the limit in the environment.
static uint64_t cap(struct ga_root *root) {
    uint64_t max = atomic_load(&root->host_max);
    return root->env.host < max ? root->env.host : max;
}

static void report_refused(struct ga_root *root, uint64_t bytes, uint64_t held, uint64_t most) {
    bool first = atomic_exchange(&root->host_refused, 1) == 0;
    (first ? ga_log_user : ga_log)(
        "refused: %u bytes of page-locked host memory, %u of %u are held", bytes, held, most);
}

bool ga_host_acquire(struct ga_root *root, uint64_t bytes) {
    ga_session_ensure(root); // the session brings the daemon's limit
    uint64_t most = cap(root);
    uint64_t held = atomic_load(&root->host_held);
    do {
        if (held > most || bytes > most - held) {
            report_refused(root, bytes, held, most);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&root->host_held, &held, held + bytes));
    ga_publish_host(root);
    return true;
}

void ga_host_release(struct ga_root *root, uint64_t bytes) {
    atomic_fetch_sub(&root->host_held, bytes);
    ga_publish_host(root);
}
