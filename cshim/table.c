// SPDX-License-Identifier: Apache-2.0
#include "table.h"

// Addresses differ in their middle bits: multiply, use the top.
static uint64_t hash(uint64_t key) {
    key ^= key >> 32;
    return key * 0x9e3779b97f4a7c15ull;
}

static struct ga_shard *shard_of(struct ga_table *table, uint64_t h) {
    return &table->shards[h >> 56];
}

static uint32_t home_of(const struct ga_shard *s, uint64_t key) {
    return (uint32_t)(hash(key) >> 24) & s->mask;
}

// The place of a key, or of the empty entry where it would go. The shard has an empty one.
static uint32_t locate(const struct ga_shard *s, uint64_t key, uint64_t h) {
    uint32_t i = (uint32_t)(h >> 24) & s->mask;
    while (s->entries[i].key != key && s->entries[i].key != 0)
        i = (i + 1) & s->mask;
    return i;
}

#define FIRST_CAPACITY 128 // one page of entries
#define HUGE ((size_t)2 << 20)

static size_t size_of(uint32_t mask) {
    return ((size_t)mask + 1) * sizeof(struct ga_entry);
}

static GA_NOINLINE bool grow(struct ga_shard *s) {
    uint32_t capacity = s->entries ? (s->mask + 1) * 2 : FIRST_CAPACITY;
    if (capacity == 0)
        return false;
    struct ga_shard next = *s;
    next.mask = capacity - 1;
    next.entries = ga_os_map(size_of(next.mask));
    if (!next.entries)
        return false;
    // A child of fork must not see its parent's blocks. Where the kernel cannot wipe, the
    // shards are wiped all the same (root.c), so that these pages are out of reach.
    ga_os_wipe_on_fork(next.entries, size_of(next.mask));
    if (size_of(next.mask) >= HUGE)
        ga_os_huge_pages(next.entries, size_of(next.mask));
    for (uint32_t i = 0; s->entries && i <= s->mask; i++) {
        const struct ga_entry *e = &s->entries[i];
        if (e->key)
            next.entries[locate(&next, e->key, hash(e->key))] = *e;
    }
    if (s->entries)
        ga_os_unmap(s->entries, size_of(s->mask));
    s->entries = next.entries;
    s->mask = next.mask;
    return true;
}

bool ga_table_put(struct ga_table *table, const struct ga_entry *entry, struct ga_entry *old) {
    uint64_t h = hash(entry->key);
    struct ga_shard *s = shard_of(table, h);
    bool done = true;
    old->key = 0;
    ga_spin_lock(&s->lock);
    // Full at three quarters: linear probing stays short.
    if (GA_UNLIKELY(s->used >= s->mask - s->mask / 4))
        done = s->used < s->mask ? grow(s) || s->used + 1 < s->mask : grow(s);
    if (GA_LIKELY(done)) {
        uint32_t i = locate(s, entry->key, h);
        if (GA_UNLIKELY(s->entries[i].key != 0))
            *old = s->entries[i];
        else
            s->used++;
        s->entries[i] = *entry;
    }
    ga_spin_unlock(&s->lock);
    return done;
}

// Empties place i and moves back what had to go past it.
static void remove_at(struct ga_shard *s, uint32_t i) {
    uint32_t next = i;
    for (;;) {
        next = (next + 1) & s->mask;
        uint64_t key = s->entries[next].key;
        if (key == 0)
            break;
        uint32_t home = home_of(s, key);
        // It may move only to a place that is not before its home, going round.
        if (((next - home) & s->mask) >= ((next - i) & s->mask)) {
            s->entries[i] = s->entries[next];
            i = next;
        }
    }
    s->entries[i].key = 0;
    s->used--;
}

bool ga_table_take(struct ga_table *table, uint64_t key, struct ga_entry *entry) {
    uint64_t h = hash(key);
    struct ga_shard *s = shard_of(table, h);
    bool found = false;
    ga_spin_lock(&s->lock);
    if (GA_LIKELY(s->entries && key)) {
        uint32_t i = locate(s, key, h);
        found = s->entries[i].key == key;
        if (GA_LIKELY(found)) {
            *entry = s->entries[i];
            remove_at(s, i);
        }
    }
    ga_spin_unlock(&s->lock);
    return found;
}

bool ga_table_find(struct ga_table *table, uint64_t key, struct ga_entry *entry) {
    uint64_t h = hash(key);
    struct ga_shard *s = shard_of(table, h);
    bool found = false;
    ga_spin_lock(&s->lock);
    if (s->entries && key) {
        uint32_t i = locate(s, key, h);
        found = s->entries[i].key == key;
        if (found)
            *entry = s->entries[i];
    }
    ga_spin_unlock(&s->lock);
    return found;
}

uint64_t ga_table_mark(struct ga_table *table, uint64_t context, uint64_t becomes) {
    uint64_t marked = 0;
    for (size_t n = 0; n < GA_TABLE_SHARDS; n++) {
        struct ga_shard *s = &table->shards[n];
        ga_spin_lock(&s->lock);
        for (uint32_t i = 0; s->entries && i <= s->mask; i++) {
            if (s->entries[i].key && s->entries[i].context == context) {
                s->entries[i].context = becomes;
                marked++;
            }
        }
        ga_spin_unlock(&s->lock);
    }
    return marked;
}

void ga_table_drain(struct ga_table *table, uint64_t context,
                    void (*take)(void *arg, const struct ga_entry *entry), void *arg) {
    for (size_t n = 0; n < GA_TABLE_SHARDS; n++) {
        struct ga_shard *s = &table->shards[n];
        ga_spin_lock(&s->lock);
        for (uint32_t i = 0; s->entries && s->used && i <= s->mask;) {
            if (s->entries[i].key && s->entries[i].context == context) {
                take(arg, &s->entries[i]);
                remove_at(s, i); // another may have moved here: the same place again
            } else {
                i++;
            }
        }
        ga_spin_unlock(&s->lock);
    }
}

void ga_table_each(struct ga_table *table, void (*show)(void *arg, const struct ga_entry *entry),
                   void *arg) {
    for (size_t n = 0; n < GA_TABLE_SHARDS; n++) {
        struct ga_shard *s = &table->shards[n];
        ga_spin_lock(&s->lock);
        for (uint32_t i = 0; s->entries && s->used && i <= s->mask; i++)
            if (s->entries[i].key)
                show(arg, &s->entries[i]);
        ga_spin_unlock(&s->lock);
    }
}
