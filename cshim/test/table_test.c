// SPDX-License-Identifier: Apache-2.0
// table_test [STEPS [SEED]]: compares the table with a plain array, for dense, distant and
// colliding addresses.
#include "core/table.h"

#include <string.h>
#include <sys/mman.h>

#include "check.h"

#define MODEL 6000

static struct ga_table table;
static struct ga_entry model[MODEL];
static size_t held;

static uint64_t address(unsigned pattern, uint64_t i) {
    switch (pattern) {
    case 0:
        return 0x7f0000000000 + i * 512; // small neighbouring blocks
    case 1:
        return 0x7f0000000000 + (i << 21); // large blocks
    case 2:
        return 0x100000000000 + (i << 33); // distant blocks
    case 3:
        return 0x555500000010 + i * 16; // handles
    default:
        return i + 1; // small numbers
    }
}

static size_t model_find(uint64_t key) {
    for (size_t i = 0; i < held; i++)
        if (model[i].key == key)
            return i;
    return held;
}

static void step(unsigned pattern, uint64_t *seed) {
    uint64_t key = address(pattern, test_random(seed) % 5000);
    size_t at = model_find(key);
    struct ga_entry got, e = {.key = key,
                              .bytes = test_random(seed) >> 16,
                              .context = test_random(seed) % 7,
                              .tag = (uint16_t)test_random(seed),
                              .device = (uint8_t)(key % 32),
                              .kind = 3};
    if (test_random(seed) % 2) {
        if (held == MODEL)
            return;
        CHECK(ga_table_put(&table, &e, &got));
        CHECK((got.key != 0) == (at < held));
        if (at < held)
            CHECK(got.bytes == model[at].bytes && got.tag == model[at].tag);
        else
            held++;
        model[at] = e;
        return;
    }
    CHECK(ga_table_find(&table, key, &got) == (at < held));
    CHECK(ga_table_remove(&table, key, &got) == (at < held));
    if (at == held)
        return;
    CHECK(got.key == key && got.bytes == model[at].bytes && got.context == model[at].context &&
          got.tag == model[at].tag && got.device == model[at].device && got.kind == 3);
    model[at] = model[--held];
}

static uint64_t seen_bytes, seen_count;

static void add(struct ga_table *all) {
    struct ga_entry e;
    struct ga_walk walk = ga_table_walk(all);
    for (; ga_table_next(&walk, &e); seen_count++)
        seen_bytes += e.bytes;
}

static void take(struct ga_table *all, uint64_t context) {
    struct ga_entry e;
    struct ga_walk walk = ga_table_walk(all);
    for (; ga_table_remove_next(&walk, context, &e); seen_count++)
        CHECK(e.context == context);
}

static void compare_all(void) {
    uint64_t bytes = 0;
    seen_bytes = seen_count = 0;
    add(&table);
    for (size_t i = 0; i < held; i++)
        bytes += model[i].bytes;
    CHECK(seen_count == held && seen_bytes == bytes);
}

// A context ends: its entries are removed, and other entries stay.
static void contexts(void) {
    uint64_t in_five = 0;
    for (size_t i = 0; i < held; i++)
        in_five += model[i].context == 5;
    struct ga_entry later = {.key = 0x123456789000, .bytes = 1, .context = 1001}, old;
    CHECK(ga_table_put(&table, &later, &old));
    seen_count = 0;
    take(&table, 5);
    CHECK(seen_count == in_five);
    CHECK(ga_table_remove(&table, later.key, &old));
    for (size_t i = 0; i < held;) {
        if (model[i].context == 5)
            model[i] = model[--held];
        else
            i++;
    }
    compare_all();
}

// A walk over a table that was never used visits nothing, and touches no memory.
static void untouched(void) {
    struct ga_table *none =
        mmap(NULL, sizeof *none, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ga_entry e = {.key = 0x1000, .bytes = 77}, old;
    CHECK(none != MAP_FAILED && mprotect(none, sizeof none->shards, PROT_NONE) == 0);
    seen_count = 0;
    add(none);
    take(none, 0);
    ga_table_recount(none);
    CHECK(seen_count == 0);
    CHECK(mprotect(none, sizeof none->shards, PROT_READ | PROT_WRITE) == 0);
    CHECK(ga_table_put(none, &e, &old) && none->most > 0);
    add(none);
    CHECK(seen_count == 1 && ga_table_remove(none, e.key, &old));
}

// One number is inserted in every space: each is a separate entry, and is removed separately.
static void keeps_spaces_apart(void) {
    static struct ga_table spaces;
    struct ga_entry old, e = {.key = 0x7f0000001000, .kind = 15, .device = 31};
    for (unsigned space = 0; space < 16; space++) {
        e.space = (uint8_t)space;
        e.bytes = space + 1;
        CHECK(ga_table_put(&spaces, &e, &old) && old.key == 0);
    }
    for (unsigned space = 16; space-- > 0;) {
        struct ga_key key = {e.key, (uint8_t)space};
        CHECK(ga_table_find_key(&spaces, key, &old) && old.bytes == space + 1);
        CHECK(old.space == space && old.kind == 15 && old.device == 31);
        CHECK(ga_table_remove_key(&spaces, key, &old) && !ga_table_find_key(&spaces, key, &old));
    }
}

int main(int argc, char **argv) {
    long steps = argc > 1 ? atol(argv[1]) : 100000;
    uint64_t seed = argc > 2 ? (uint64_t)atol(argv[2]) : 1;
    struct ga_entry e;
    untouched();
    keeps_spaces_apart();
    CHECK(!ga_table_remove(&table, 0x1000, &e) && !ga_table_remove(&table, 0, &e));
    for (unsigned pattern = 0; pattern < 5; pattern++) {
        for (long i = 0; i < steps; i++)
            step(pattern, &seed);
        compare_all();
        contexts();
    }
    while (held > 0) {
        CHECK(ga_table_remove(&table, model[held - 1].key, &e));
        held--;
    }
    compare_all();
    return 0;
}
