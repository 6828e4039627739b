// SPDX-License-Identifier: Apache-2.0
// Writes the published figures into the lease page, by atomic stores.
#include "core/publish.h"

#include "core/credit.h"

#define AGAIN_MS 1000

void ga_publish(struct ga_root *root) {
    struct ga_view *view = atomic_load(&root->view);
    uint64_t blocks;
    uint32_t imports, makings, managings;
    if (!view)
        return;
    do { // repeat if another thread has changed a figure meanwhile
        blocks = atomic_load(&root->blocks.most);
        imports = atomic_load(&root->imports_changed);
        makings = atomic_load(&root->making_changed);
        managings = atomic_load(&root->managed_changed);
        uint64_t pools = ga_os_least(atomic_load(&root->pools_seen), GA_COUNTS_POOLS_MAX);
        uint64_t counts =
            GA_COUNTS_TOLD | (atomic_load(&root->soft) ? GA_COUNTS_SOFT : 0) |
            pools << GA_COUNTS_POOLS_SHIFT |
            ga_os_least(blocks + atomic_load(&root->imports.most), GA_COUNTS_BLOCKS_MAX);
        for (uint32_t d = 0; d < GA_DEVICES; d++) {
            uint32_t slot = atomic_load(&view->slot[d]);
            if (!slot)
                continue;
            uint64_t making = ga_os_least(atomic_load(&root->making[d]), GA_COUNTS_MAKING_MAX);
            uint64_t imported =
                atomic_load(&root->imports_unknown) ? GA_NO_LIMIT : atomic_load(&root->imported[d]);
            atomic_store((ga_word *)&view->page->lease[slot - 1].imported, imported);
            atomic_store((ga_word *)&view->page->lease[slot - 1].managed,
                         atomic_load(&root->managed[d]));
            atomic_store((ga_word *)&view->page->lease[slot - 1].counts,
                         counts | making << GA_COUNTS_MAKING_SHIFT);
        }
        atomic_store(&root->blocks.published, blocks);
    } while (atomic_load(&root->blocks.most) != blocks ||
             atomic_load(&root->imports_changed) != imports ||
             atomic_load(&root->making_changed) != makings ||
             atomic_load(&root->managed_changed) != managings);
}

void ga_publish_again(struct ga_root *root) {
    uint64_t now = ga_os_coarse_ms();
    uint64_t last = atomic_load(&root->published_ms);
    if (now - last < AGAIN_MS || !atomic_compare_exchange_strong(&root->published_ms, &last, now))
        return;
    ga_self_enter();
    ga_table_recount(&root->blocks);
    ga_table_recount(&root->imports);
    ga_self_leave();
    ga_publish(root);
}

void ga_publish_soft(struct ga_root *root) {
    if (GA_UNLIKELY(atomic_load(&root->soft) == 0) && atomic_exchange(&root->soft, 1) == 0)
        ga_publish(root);
}

void ga_publish_pool(struct ga_root *root) {
    atomic_fetch_add(&root->pools_seen, 1);
    ga_publish(root);
}

void ga_publish_import(struct ga_root *root, uint32_t device, uint64_t bytes, int unknown) {
    atomic_fetch_add(&root->imported[device], bytes);
    atomic_fetch_add(&root->imports_unknown, (uint32_t)unknown);
    atomic_fetch_add(&root->imports_changed, 1);
    ga_publish(root);
}

void ga_publish_managed(struct ga_root *root, uint32_t device, uint64_t bytes) {
    atomic_fetch_add(&root->managed[device], bytes);
    atomic_fetch_add(&root->managed_changed, 1);
    ga_publish(root);
}

static void change_making(struct ga_root *root, uint32_t device, uint32_t by) {
    atomic_fetch_add(&root->making[device], by);
    atomic_fetch_add(&root->making_changed, 1);
    ga_publish(root);
}

// A signal handler may make a context on another device while its thread makes one. That context is
// in no record, so it counts for good if the thread ends in the handler.
void ga_publish_context_begin(struct ga_root *root, uint32_t device) {
    struct ga_thread *t = ga_self.thread;
    if (t && (atomic_load(&t->making) == 0 || t->making_on == device)) {
        t->making_on = device;
        atomic_fetch_add(&t->making, 1);
    }
    change_making(root, device, 1);
}

void ga_publish_context_end(struct ga_root *root, uint32_t device) {
    struct ga_thread *t = ga_self.thread;
    if (t && atomic_load(&t->making) != 0 && t->making_on == device)
        atomic_fetch_sub(&t->making, 1);
    change_making(root, device, UINT32_MAX);
}

// Writes the count of page-locked memory. Threads may store in any order, so a thread that finds a
// newer count stores again.
void ga_publish_host(struct ga_root *root) {
    struct ga_view *view = atomic_load(&root->view);
    uint64_t held;
    do {
        held = atomic_load(&root->host_held);
        if (view)
            atomic_store((ga_word *)&view->page->host, held);
    } while (held != atomic_load(&root->host_held));
}
