// SPDX-License-Identifier: Apache-2.0
// Fuzz target of the table: compares it with a plain array, in steps that the input chooses.
#include <stdlib.h>
#include <string.h>

#include "core/table.h"

#define CHECK(condition) ((condition) ? (void)0 : abort())
enum { MODEL = 2048, STEP = 4, RUN = 40 };

static struct ga_table table; // grows; empty between inputs
static struct ga_entry model[MODEL];
static size_t held;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Makes a key: neighbouring, large, distant blocks, handles, small numbers, and keys with many
// bits.
static uint64_t key_of(uint8_t pattern, uint64_t i) {
    static const uint64_t base[] = {0x7f0000000000, 0x7f0000000000, 0x100000000000, 0x555500000010,
                                    1};
    static const unsigned shift[] = {9, 21, 33, 4, 0};
    if (pattern % 6 == 5)
        return (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return base[pattern % 6] + (i << shift[pattern % 6]);
}

static size_t model_find(uint64_t key) {
    size_t i = 0;
    while (i < held && model[i].key != key)
        i++;
    return i;
}

static bool same(const struct ga_entry *a, const struct ga_entry *b) {
    return a->key == b->key && a->bytes == b->bytes && a->context == b->context &&
           a->tag == b->tag && a->device == b->device && a->kind == b->kind;
}

static void put(const struct ga_entry *entry) {
    struct ga_entry old;
    size_t at = model_find(entry->key);
    if (at == MODEL)
        return;
    CHECK(ga_table_put(&table, entry, &old));
    if (at < held)
        CHECK(same(&old, &model[at]));
    else
        CHECK(old.key == 0);
    model[at] = *entry;
    held += at == held;
}

static void take(uint64_t key) {
    struct ga_entry found, taken;
    size_t at = model_find(key);
    CHECK(ga_table_find(&table, key, &found) == (at < held));
    CHECK(ga_table_remove(&table, key, &taken) == (at < held));
    if (at == held)
        return;
    CHECK(same(&found, &model[at]) && same(&taken, &found));
    model[at] = model[--held];
}

static void forget(const struct ga_entry *entry) {
    size_t at = model_find(entry->key);
    CHECK(at < held && same(entry, &model[at]));
    model[at] = model[--held];
}

static size_t in_context(uint64_t context) {
    size_t n = 0;
    for (size_t i = 0; i < held; i++)
        n += model[i].context == context;
    return n;
}

static void drain(uint64_t context) {
    struct ga_entry entry;
    struct ga_walk walk = ga_table_walk(&table);
    while (ga_table_remove_next(&walk, context, &entry))
        forget(&entry);
    CHECK(in_context(context) == 0);
}

static size_t count(void) {
    size_t n = 0;
    struct ga_entry entry;
    struct ga_walk walk = ga_table_walk(&table);
    for (; ga_table_next(&walk, &entry); n++) {
        size_t at = model_find(entry.key);
        CHECK(at < held && same(&entry, &model[at]));
    }
    return n;
}

// Reads a step: its operation, the pattern of its key, the key, the value.
static void step(const uint8_t *s) {
    struct ga_entry entry = {.key = key_of(s[1] >> 4, s[2]),
                             .bytes = (uint64_t)s[3] << (s[1] % 40),
                             .context = s[3] % 5,
                             .tag = s[3],
                             .device = s[2] % 32,
                             .kind = s[1] % 16};
    switch (s[0] % 8) {
    case 0:
    case 1:
        put(&entry);
        break;
    case 2:
        take(entry.key);
        break;
    case 3:
        for (uint64_t i = 0; i < RUN; i++, entry.key = key_of(s[1] >> 4, s[2] + i * (s[3] + 1)))
            put(&entry);
        break;
    case 4:
        for (uint64_t i = 0; i < RUN; i++)
            take(key_of(s[1] >> 4, s[2] + i * (s[3] + 1)));
        break;
    case 5:
        drain(s[2] % 5);
        break;
    default:
        CHECK(count() == held);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (; size >= STEP; size -= STEP, data += STEP)
        step(data);
    CHECK(count() == held);
    while (held > 0)
        take(model[held - 1].key);
    CHECK(count() == 0);
    return 0;
}
