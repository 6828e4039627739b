// SPDX-License-Identifier: Apache-2.0
#include "core/charge.h"

// Records lie in blocks, which stay.
#define BLOCK_SIZE ((size_t)16 << 10)
#define RECORDS ((uint32_t)(BLOCK_SIZE / GA_CHARGE_SIZE - 1))

struct ga_charge_block {
    struct ga_charge_block *next; // made before
    _Atomic uint32_t used;
    _Alignas(GA_CHARGE_SIZE) uint8_t records[RECORDS][GA_CHARGE_SIZE];
};
_Static_assert(sizeof(struct ga_charge_block) == BLOCK_SIZE, "one piece of ga_root_alloc");

// One that never was used; NULL: the block is full. The caller holds the lock.
static struct ga_charge *next_fresh(struct ga_charges *all) {
    struct ga_charge_block *block = atomic_load(&all->blocks);
    uint32_t used = block ? atomic_load(&block->used) : RECORDS;
    if (used == RECORDS)
        return NULL;
    atomic_store(&block->used, used + 1);
    return (struct ga_charge *)(void *)block->records[used];
}

static struct ga_charge *take(struct ga_charges *all) {
    ga_self_lock(&all->lock);
    struct ga_charge *charge = all->unused;
    if (charge)
        all->unused = charge->next;
    else
        charge = next_fresh(all);
    if (charge && ++all->out > atomic_load(&all->most))
        atomic_store(&all->most, all->out);
    ga_self_unlock(&all->lock);
    return charge;
}

// A block that one thread adds while another does as well is left with what it has.
static bool add_block(struct ga_root *root) {
    struct ga_charges *all = &root->charges;
    struct ga_charge_block *block = ga_root_alloc(root, BLOCK_SIZE);
    if (!block)
        return false;
    ga_self_lock(&all->lock);
    block->next = atomic_load(&all->blocks);
    atomic_store(&all->blocks, block);
    ga_self_unlock(&all->lock);
    return true;
}

GA_NOINLINE struct ga_charge *ga_charge_fetch(struct ga_root *root) {
    struct ga_charge *charge = take(&root->charges);
    while (!charge && add_block(root))
        charge = take(&root->charges);
    return charge;
}

GA_NOINLINE void ga_charge_return(struct ga_root *root, struct ga_charge *charge) {
    struct ga_charges *all = &root->charges;
    ga_spin_lock(&all->lock);
    charge->next = all->unused;
    all->unused = charge;
    all->out--;
    ga_spin_unlock(&all->lock);
}

void ga_charge_recount(struct ga_root *root) {
    struct ga_charges *all = &root->charges;
    ga_spin_lock(&all->lock);
    atomic_store(&all->most, all->out);
    ga_spin_unlock(&all->lock);
}

void ga_charge_each(struct ga_root *root, void (*show)(void *arg, const struct ga_entry *entry),
                    void *arg) {
    for (struct ga_charge_block *b = atomic_load(&root->charges.blocks); b; b = b->next)
        for (uint32_t i = 0; i < atomic_load(&b->used); i++) {
            const struct ga_charge *charge = (const struct ga_charge *)(void *)b->records[i];
            struct ga_entry entry = {
                .bytes = atomic_load_explicit(&charge->bytes, memory_order_acquire)};
            if (!entry.bytes)
                continue;
            entry.tag = atomic_load_explicit(&charge->tag, memory_order_relaxed);
            entry.device = atomic_load_explicit(&charge->device, memory_order_relaxed);
            show(arg, &entry);
        }
}
