// SPDX-License-Identifier: Apache-2.0
#include "tell.h"

#define AGAIN_MS 1000

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

void ga_tell(struct ga_root *root) {
    struct ga_view *view = atomic_load(&root->view);
    uint64_t blocks;
    uint32_t imports;
    if (!view)
        return;
    do { // another thread may write what it knew before
        blocks = atomic_load(&root->blocks.most);
        imports = atomic_load(&root->imports_changed);
        uint64_t pools = least(atomic_load(&root->pools_seen), GA_COUNTS_POOLS_MAX);
        uint64_t counts = GA_COUNTS_TOLD | (atomic_load(&root->soft) ? GA_COUNTS_SOFT : 0) |
                          pools << GA_COUNTS_POOLS_SHIFT |
                          least(blocks + atomic_load(&root->imports.most), GA_COUNTS_BLOCKS_MAX);
        for (uint32_t d = 0; d < GA_DEVICES; d++) {
            uint32_t slot = atomic_load(&view->slot[d]);
            if (!slot)
                continue;
            uint64_t imported =
                atomic_load(&root->imports_unknown) ? GA_NO_LIMIT : atomic_load(&root->imported[d]);
            atomic_store((ga_page_word *)&view->page->lease[slot - 1].imported, imported);
            atomic_store((ga_page_word *)&view->page->lease[slot - 1].counts, counts);
        }
        atomic_store(&root->blocks.told, blocks);
    } while (atomic_load(&root->blocks.most) != blocks ||
             atomic_load(&root->imports_changed) != imports);
}

void ga_tell_again(struct ga_root *root) {
    uint64_t now = ga_os_coarse_ms();
    uint64_t last = atomic_load(&root->told_ms);
    if (now - last < AGAIN_MS || !atomic_compare_exchange_strong(&root->told_ms, &last, now))
        return;
    ga_self_enter();
    ga_table_recount(&root->blocks);
    ga_table_recount(&root->imports);
    ga_self_leave();
    ga_tell(root);
}

void ga_tell_soft(struct ga_root *root) {
    if (atomic_exchange(&root->soft, 1) == 0)
        ga_tell(root);
}

void ga_tell_pool(struct ga_root *root) {
    atomic_fetch_add(&root->pools_seen, 1);
    ga_tell(root);
}

void ga_tell_import(struct ga_root *root, uint32_t device, uint64_t bytes, int unknown) {
    atomic_fetch_add(&root->imported[device], bytes);
    atomic_fetch_add(&root->imports_unknown, (uint32_t)unknown);
    atomic_fetch_add(&root->imports_changed, 1);
    ga_tell(root);
}
