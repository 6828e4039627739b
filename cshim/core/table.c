// SPDX-License-Identifier: Apache-2.0
// The layout of shards, the search for keys, and the growth of shards.
#include "core/table.h"

#define KEYS 8U // keys in a line

struct ga_table_line {
    uint64_t key[KEYS];
};

// Entry without its key, packed to 16 bytes, so that a table of a million entries stays small.
struct ga_table_value {
    uint64_t bytes_tag;      // bytes in the low 48 bits
    uint64_t context_device; // bits 0–47 context, 48–55 device, 56–59 kind, 60–63 space
};

#define LOW48 ((1ull << 48) - 1)
#define KIND_SHIFT 56
#define KIND_MASK 15
#define SPACE_SHIFT 60

static inline struct ga_table_value pack(const struct ga_entry *e) {
    return (struct ga_table_value){
        .bytes_tag = (e->bytes & LOW48) | (uint64_t)e->tag << 48,
        .context_device = (e->context & LOW48) | (uint64_t)e->device << 48 |
                          (uint64_t)(e->kind & KIND_MASK) << KIND_SHIFT |
                          (uint64_t)e->space << SPACE_SHIFT,
    };
}

static inline void unpack(struct ga_entry *e, uint64_t key, struct ga_table_value v) {
    e->key = key;
    e->bytes = v.bytes_tag & LOW48;
    e->context = v.context_device & LOW48;
    e->tag = (uint16_t)(v.bytes_tag >> 48);
    e->device = (uint8_t)(v.context_device >> 48);
    e->kind = v.context_device >> KIND_SHIFT & KIND_MASK;
    e->space = (uint8_t)(v.context_device >> SPACE_SHIFT);
}

// How place_of finds the place of a key: a group has eight lines, for 64 consecutive granules of
// 512 bytes; device addresses are multiples of 512. In an aligned range of addresses, folding maps
// no two numbers of groups to the same group, so blocks that lie side by side do not collide. Keys
// that do collide (of other ranges, or with large distances) are scattered over the lines of a
// group and, when a line is full, over the groups. Handles are not multiples of 512, so their low
// bits are added.
#define GRANULE_BITS 9
#define GROUP_LINES 8U

struct place {
    uint32_t shard;
    uint32_t group; // number of the group, before the shard's mask
    uint32_t line;  // line in the group
    uint32_t key;   // first position in the line to search
    uint32_t step;  // step to the next group; odd
};

static inline struct place place_of(uint64_t key) {
    uint64_t granule = (key >> GRANULE_BITS) + (key & ((1u << GRANULE_BITS) - 1));
    uint64_t fold = granule >> 6;
    fold ^= fold >> 6;
    fold ^= fold >> 12;
    fold ^= fold >> 24;
    uint64_t h = fold * 0x9e3779b97f4a7c15ull;
    return (struct place){
        .shard = (uint32_t)fold & (GA_TABLE_SHARDS - 1),
        .group = (uint32_t)(fold >> 8),
        .line = (uint32_t)((granule >> 3) + (h >> 61)) & (GROUP_LINES - 1),
        .key = (uint32_t)granule & (KEYS - 1),
        .step = (uint32_t)(h >> 32) | 1,
    };
}

// Returns the n-th line to search for a key: the same line of other groups; after all groups the
// next line of each.
static inline uint32_t line_of(const struct ga_shard *s, struct place p, uint32_t n) {
    uint32_t groups = s->lines / GROUP_LINES;
    uint32_t turn = GA_LIKELY(n < groups) ? 0 : n / groups;
    return ((p.group + n * p.step) & (groups - 1)) * GROUP_LINES +
           ((p.line + turn) & (GROUP_LINES - 1));
}

static inline uint32_t scan(const struct ga_table_line *line, uint64_t key, uint32_t first) {
    for (uint32_t i = 0; i < KEYS; i++)
        if (line->key[(first + i) & (KEYS - 1)] == key)
            return (first + i) & (KEYS - 1);
    return KEYS;
}

static inline struct ga_key key_of(const struct ga_entry *e) {
    return (struct ga_key){e->key, e->space};
}

struct found {
    uint32_t line, key, n; // n: number of lines that were searched before `line`
};

// Returns the position of a key in a line; KEYS: not in it. The line may have keys with the same
// number in other spaces.
static inline uint32_t scan_space(const struct ga_shard *s, uint32_t line, struct ga_key key,
                                  uint32_t first) {
    for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t at = (first + i) & (KEYS - 1);
        if (s->keys[line].key[at] == key.number &&
            GA_LIKELY(s->values[line * KEYS + at].context_device >> SPACE_SHIFT == key.space))
            return at;
    }
    return KEYS;
}

static inline bool locate(const struct ga_shard *s, struct ga_key key, struct place p,
                          struct found *at) {
    if (GA_UNLIKELY(s->lines == 0 || key.number == 0))
        return false;
    for (at->n = 0; at->n < s->lines; at->n++) {
        at->line = line_of(s, p, at->n);
        at->key = scan_space(s, at->line, key, p.key);
        if (GA_LIKELY(at->key < KEYS))
            return true;
        if (GA_LIKELY(s->passed[at->line] == 0))
            return false;
    }
    return false;
}

static inline struct ga_table_value *value_at(const struct ga_shard *s, const struct found *at) {
    return &s->values[at->line * KEYS + at->key];
}

// Writes a key into the first free position. There is one, because a shard is at most half full.
static inline void claim(struct ga_shard *s, uint64_t key, struct ga_table_value value,
                         struct place p) {
    for (uint32_t n = 0;; n++) {
        uint32_t line = line_of(s, p, n);
        uint32_t i = scan(&s->keys[line], 0, p.key);
        if (GA_LIKELY(i < KEYS)) {
            s->used++;
            s->values[line * KEYS + i] = value;
            s->keys[line].key[i] = key;
            return;
        }
        if (s->passed[line] < UINT8_MAX)
            s->passed[line]++;
    }
}

// Removes a key that claim wrote. A saturated count stays, which only makes searches longer.
static inline void vacate(struct ga_shard *s, struct place p, const struct found *at) {
    s->keys[at->line].key[at->key] = 0;
    s->used--;
    for (uint32_t n = 0; GA_UNLIKELY(n < at->n); n++) {
        uint8_t *passed = &s->passed[line_of(s, p, n)];
        if (*passed < UINT8_MAX)
            (*passed)--;
    }
}

#define HUGE ((size_t)2 << 20)

// Returns the size of a shard's mapping: keys, values, counts.
static size_t size_of(uint32_t lines) {
    size_t line = sizeof(struct ga_table_line) + KEYS * sizeof(struct ga_table_value) + 1;
    return ((size_t)lines * line + 4095) & ~(size_t)4095;
}

static void lay_out(struct ga_shard *s, void *memory, uint32_t lines) {
    s->lines = lines;
    s->used = 0;
    s->keys = memory;
    s->values = (struct ga_table_value *)(s->keys + lines);
    s->passed = (uint8_t *)(s->values + (size_t)lines * KEYS);
}

static GA_NOINLINE bool grow(struct ga_shard *s) {
    uint32_t lines = s->lines ? s->lines * 2 : GROUP_LINES;
    void *memory = lines ? ga_os_map_now(size_of(lines)) : NULL;
    if (!memory)
        return false;
    // A forked child must not see its parent's blocks. If the kernel cannot wipe pages, the shards
    // are wiped all the same (root.c), so that these pages are unreachable.
    ga_os_wipe_on_fork(memory, size_of(lines));
    if (size_of(lines) >= HUGE)
        ga_os_huge_pages(memory, size_of(lines));
    struct ga_shard old = *s;
    lay_out(s, memory, lines);
    for (uint32_t i = 0; i < old.lines * KEYS; i++) {
        uint64_t key = old.keys[i / KEYS].key[i % KEYS];
        if (key)
            claim(s, key, old.values[i], place_of(key));
    }
    if (old.keys)
        ga_os_unmap(old.keys, size_of(old.lines));
    return true;
}

// Raises `most`, the upper bound of the number of entries, before an entry is added. Readers take a
// table for empty, without a lock, if its `most` is 0. The step is larger for a larger shard, so
// that this stays rare.
static GA_NOINLINE void raise_most(struct ga_table *table, struct ga_shard *s) {
    uint32_t most = s->used + 1 + s->used / 8;
    atomic_fetch_add(&table->most, most - s->most);
    s->most = most;
}

bool ga_table_put(struct ga_table *table, const struct ga_entry *entry, struct ga_entry *old) {
    struct place p = place_of(entry->key);
    struct ga_shard *s = &table->shards[p.shard];
    struct ga_table_value value = pack(entry);
    struct found at;
    bool done = true;
    old->key = 0;
    ga_spin_lock(&s->lock);
    if (GA_UNLIKELY(locate(s, key_of(entry), p, &at))) {
        unpack(old, entry->key, *value_at(s, &at));
        *value_at(s, &at) = value;
    } else {
        // Without memory to grow, the shard may fill up to all positions but one.
        if (GA_UNLIKELY(s->used >= s->lines * (KEYS / 2)))
            done = grow(s) || s->used + 1 < s->lines * KEYS;
        if (GA_UNLIKELY(done && s->used >= s->most))
            raise_most(table, s);
        if (GA_LIKELY(done))
            claim(s, entry->key, value, p);
    }
    ga_spin_unlock(&s->lock);
    return done;
}

// Returns a walk over the table. If nothing was ever added, the walk touches no page.
struct ga_walk ga_table_walk(struct ga_table *table) {
    return (struct ga_walk){.table = table,
                            .shards = atomic_load(&table->most) ? GA_TABLE_SHARDS : 0};
}

// Moves a walk to the next entry, and leaves the entry's shard locked. NULL: no more entries.
static struct ga_shard *advance(struct ga_walk *w) {
    for (; w->shard < w->shards; w->shard++, w->place = 0) {
        struct ga_shard *s = &w->table->shards[w->shard];
        if (!w->locked)
            ga_spin_lock(&s->lock);
        w->locked = true;
        while (s->used && w->place < s->lines * KEYS) {
            uint32_t i = w->place++;
            if (s->keys[i / KEYS].key[i % KEYS] != 0)
                return s;
        }
        ga_spin_unlock(&s->lock);
        w->locked = false;
    }
    return NULL;
}

void ga_table_recount(struct ga_table *table) {
    size_t shards = ga_table_walk(table).shards;
    for (size_t n = 0; n < shards; n++) {
        struct ga_shard *s = &table->shards[n];
        ga_spin_lock(&s->lock);
        atomic_fetch_sub(&table->most, s->most - s->used);
        s->most = s->used;
        ga_spin_unlock(&s->lock);
    }
}

// Finds an entry. Inlined into both callers, because a test of `take` at run time costs 2 ns a
// call.
__attribute__((always_inline)) static inline bool find(struct ga_table *table, struct ga_key key,
                                                       struct ga_entry *entry, bool take) {
    struct place p = place_of(key.number);
    struct ga_shard *s = &table->shards[p.shard];
    struct found at;
    ga_spin_lock(&s->lock);
    bool found = locate(s, key, p, &at);
    if (GA_LIKELY(found)) {
        unpack(entry, key.number, *value_at(s, &at));
        if (take)
            vacate(s, p, &at);
    }
    ga_spin_unlock(&s->lock);
    return found;
}

bool ga_table_remove_key(struct ga_table *table, struct ga_key key, struct ga_entry *entry) {
    return find(table, key, entry, true);
}

bool ga_table_find_key(struct ga_table *table, struct ga_key key, struct ga_entry *entry) {
    return find(table, key, entry, false);
}

static bool lives_in(const struct ga_shard *s, uint32_t i, uint64_t context) {
    return (s->values[i].context_device & LOW48) == (context & LOW48);
}

static void read_entry(const struct ga_shard *s, uint32_t i, struct ga_entry *entry) {
    unpack(entry, s->keys[i / KEYS].key[i % KEYS], s->values[i]);
}

bool ga_table_next(struct ga_walk *walk, struct ga_entry *entry) {
    struct ga_shard *s = advance(walk);
    if (s)
        read_entry(s, walk->place - 1, entry);
    return s != NULL;
}

bool ga_table_remove_next(struct ga_walk *walk, uint64_t context, struct ga_entry *entry) {
    struct ga_shard *s = advance(walk);
    while (s && !lives_in(s, walk->place - 1, context))
        s = advance(walk);
    if (!s)
        return false;
    read_entry(s, walk->place - 1, entry);
    struct place p = place_of(entry->key);
    struct found at;
    if (locate(s, key_of(entry), p, &at))
        vacate(s, p, &at);
    return true;
}
