// SPDX-License-Identifier: Apache-2.0
// Table of what the program holds, by address or handle. admit.h inserts device memory; the
// interfaces keep streams and contexts in tables of their own.
//
// The table is a hash table in 256 shards, each with a spin lock. Shards grow one by one, so growth
// moves a few thousand entries at a time, however large the table is. Eight keys lie in a cache
// line, and neighbouring addresses in neighbouring lines, because programs use neighbours one after
// the other. A full line passes keys on and counts them, so removal leaves no markers. Memory comes
// from mmap alone. All zero is an empty table, as a forked child finds it.
#ifndef GA_TABLE_H
#define GA_TABLE_H

#include "core/lock.h"

#define GA_TABLE_SHARDS 256

// Key: a space and a number. The space tells what the number is, such as an address or an array
// handle. A driver may use all bits of its addresses and handles, so the number has no bit for
// that.
enum {
    GA_SPACE_PLAIN = 0, // for tables with one kind of key; in root.blocks: addresses
    GA_SPACES = 16,     // number of spaces; 1 to 15 are for the interfaces, in their headers
};

struct ga_key {
    uint64_t number;
    uint8_t space;
};

struct ga_entry {
    uint64_t key;   // number of its key; 0: no entry
    uint64_t bytes; // charged bytes, below 2⁴⁸; of a stream or context: number of the thread that
                    // made it
    uint64_t context; // owner, below 2⁴⁸: a context's serial number, a pool or a device
    uint16_t tag;     // session that it is charged in (ga_view.tag)
    uint8_t device;   // number of the device (device.h)
    uint8_t kind;     // kind of entry, below 16, as the table's user defines
    uint8_t space;    // GA_SPACE_…
};

struct ga_shard {
    _Alignas(64) struct ga_spin lock;
    uint32_t used;
    uint32_t lines; // a power of two, or 0
    uint32_t most;  // share of ga_table.most; never less than used
    struct ga_table_line *keys;
    struct ga_table_value *values; // one value for each key
    uint8_t *passed;               // for each line: number of keys that found it full, saturating
    uint64_t pad[3];
};

struct ga_table {
    struct ga_shard shards[GA_TABLE_SHARDS];
    // Sum of the highest entry counts of the shards, or a little more; published: its value in the
    // lease page.
    _Alignas(64) _Atomic uint64_t most;
    _Atomic uint64_t published;
};

// Adds *entry. An entry with the same key is replaced and copied to *old; old->key is 0 if there
// was none. False: no memory; nothing changed.
bool ga_table_put(struct ga_table *table, const struct ga_entry *entry, struct ga_entry *old);
// Removes the entry with a key. False: there is none.
bool ga_table_remove_key(struct ga_table *table, struct ga_key key, struct ga_entry *entry);
// Copies the entry with a key. False: there is none.
bool ga_table_find_key(struct ga_table *table, struct ga_key key, struct ga_entry *entry);
// Remove and find by a number in GA_SPACE_PLAIN.
static inline bool ga_table_remove(struct ga_table *table, uint64_t number,
                                   struct ga_entry *entry) {
    return ga_table_remove_key(table, (struct ga_key){number, GA_SPACE_PLAIN}, entry);
}
static inline bool ga_table_find(struct ga_table *table, uint64_t number, struct ga_entry *entry) {
    return ga_table_find_key(table, (struct ga_key){number, GA_SPACE_PLAIN}, entry);
}
// Walk over all entries. Between two steps the lock of a shard is held. So the caller must be
// quick, must not call functions of this table, and must finish the walk.
struct ga_walk {
    struct ga_table *table;
    uint32_t shards; // number of shards to visit
    uint32_t shard;
    uint32_t place; // position of the next entry in the shard
    bool locked;
};
struct ga_walk ga_table_walk(struct ga_table *table);
// Moves to the next entry. False: there are no more.
bool ga_table_next(struct ga_walk *walk, struct ga_entry *entry);
// Moves to the next entry of a context, and removes it.
bool ga_table_remove_next(struct ga_walk *walk, uint64_t context, struct ga_entry *entry);
// Sets table->most to the current number of entries.
void ga_table_recount(struct ga_table *table);

#endif
