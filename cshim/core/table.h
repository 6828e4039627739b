// SPDX-License-Identifier: Apache-2.0
// The pointer table: what the program holds, by address or handle.
//
// A hash table in shards, each with a spin lock of its own, grown by itself, so that growth costs
// a few thousand entries at a time however many blocks are held. Keys lie eight to a cache line;
// addresses that are neighbours lie in lines that are neighbours, because a program uses
// neighbours one after the other, and a table of a million entries fits no cache. A line that is
// full passes keys on and counts them; so removal leaves no gravestones. Memory comes from mmap
// alone. All zero is an empty table, which is what a forked child finds.
#ifndef GA_TABLE_H
#define GA_TABLE_H

#include "core/lock.h"

#define GA_TABLE_SHARDS 256

// A key is a space and a number. The space says what kind of number it is: an address, a handle of
// arrays, … A driver may use every bit of its addresses and handles, so that no bit of the number
// can say that.
enum {
    GA_SPACE_PLAIN = 0, // for tables with one kind of key; in root.blocks: addresses
    GA_SPACES = 16,     // number of spaces; 1 to 15 are for the interfaces, in their headers
};

struct ga_key {
    uint64_t number;
    uint8_t space;
};

struct ga_entry {
    uint64_t key;     // number of the key; 0: no entry
    uint64_t bytes;   // what it is charged with, below 2⁴⁸; of a stream or context: who made it
    uint64_t context; // what it lives in, below 2⁴⁸: a context's serial number, a pool, a device
    uint16_t tag;     // the session that it was charged in (ga_view.tag)
    uint8_t device;   // by its number (device.h)
    uint8_t kind;     // kind of entry, as the table's owner numbers them; below 16
    uint8_t space;    // GA_SPACE_…
};

struct ga_shard {
    _Alignas(64) struct ga_spin lock;
    uint32_t used;
    uint32_t lines; // a power of two, or 0
    uint32_t most;  // never less than used: its part of ga_table.most
    struct ga_table_line *keys;
    struct ga_table_value *values; // one for each key
    uint8_t *passed;               // for each line: keys that found it full, saturating
    uint64_t pad[3];
};

struct ga_table {
    struct ga_shard shards[GA_TABLE_SHARDS];
    // The most entries that each shard had, added up, or a little more; and what was told of it.
    _Alignas(64) _Atomic uint64_t most;
    _Atomic uint64_t published;
};

// Puts *entry in. An entry with the same key is replaced and handed out in *old
// (old->key is 0 when there was none). False: no memory, nothing changed.
bool ga_table_put(struct ga_table *table, const struct ga_entry *entry, struct ga_entry *old);
// Takes the entry with this key out. False when there is none.
bool ga_table_remove_key(struct ga_table *table, struct ga_key key, struct ga_entry *entry);
// Copies the entry with this key. False when there is none.
bool ga_table_find_key(struct ga_table *table, struct ga_key key, struct ga_entry *entry);
// Take and find by a number in GA_SPACE_PLAIN.
static inline bool ga_table_remove(struct ga_table *table, uint64_t number,
                                   struct ga_entry *entry) {
    return ga_table_remove_key(table, (struct ga_key){number, GA_SPACE_PLAIN}, entry);
}
static inline bool ga_table_find(struct ga_table *table, uint64_t number, struct ga_entry *entry) {
    return ga_table_find_key(table, (struct ga_key){number, GA_SPACE_PLAIN}, entry);
}
// A walk over all entries. From one step to the next the lock of a shard is held: what is done in
// between must not come back here, and must be quick; and a walk goes on to its end.
struct ga_walk {
    struct ga_table *table;
    uint32_t shards; // how many there are to look into
    uint32_t shard;
    uint32_t place; // in it, of the next entry
    bool locked;
};
struct ga_walk ga_table_walk(struct ga_table *table);
// One step. False: that was all.
bool ga_table_next(struct ga_walk *walk, struct ga_entry *entry);
// One step to the next entry of a context, which is taken out.
bool ga_table_remove_next(struct ga_walk *walk, uint64_t context, struct ga_entry *entry);
// Makes table->most what there is now.
void ga_table_recount(struct ga_table *table);

#endif
