// SPDX-License-Identifier: Apache-2.0
//
// Device addresses. A large range of address space is reserved once; its pages become real when a
// copy touches them. The range is divided into spans, and each span has blocks of one size class.
// So two array look-ups find a block from any address inside it. A freed slot is used again at
// once, as in a real driver: a stale pointer may point to a new block.

#include "driver.h"

#include <stdlib.h>
#include <sys/mman.h>

#define GRANULE (64ull << 20) // spans begin at multiples of it
#define PAGE 4096ull

enum { MIN_SHIFT = 9, CLASSES = 4 * 40 };

struct span {
    CUdeviceptr base;
    uint64_t slot; // bytes of address space for each block
    uint64_t count, fresh;
    struct block *blocks;
};

static struct {
    CUdeviceptr base;
    uint64_t size, top; // bytes reserved, bytes cut into spans
    struct span **by_granule;
    struct block *free_list[CLASSES];
    struct span *current[CLASSES];
    uint64_t next_id;
} va;

// Returns the size class, and the bytes of its slots. There are four classes for each doubling, so
// at most a quarter of the address space is wasted.
static unsigned class_of(uint64_t size, uint64_t *slot) {
    uint64_t unit = 1ull << MIN_SHIFT;
    if (size <= 4 * unit) {
        uint64_t n = (size + unit - 1) / unit;
        *slot = n * unit;
        return (unsigned)n - 1;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(size - 1);
    uint64_t step = 1ull << (top - 2);
    uint64_t quarter = (size - 1) >> (top - 2); // 4..7
    *slot = (quarter + 1) * step;
    return 4 * (top - MIN_SHIFT - 1) + (unsigned)(quarter - 4);
}

// Reserves the address space: less if little is available, under valgrind or with a limit on the
// address space.
bool block_reserve(void) {
    if (va.base)
        return true;
    for (uint64_t size = 16ull << 40; size >= (1ull << 30); size /= 2) {
        void *p = mmap(NULL, size + GRANULE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            continue;
        madvise(p, size + GRANULE, MADV_DONTDUMP);
        madvise(p, size + GRANULE, MADV_NOHUGEPAGE);
        void *spans =
            mmap(NULL, (size_t)(size / GRANULE) * sizeof *va.by_granule, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (spans == MAP_FAILED) {
            munmap(p, size + GRANULE);
            continue;
        }
        va.base = ((CUdeviceptr)(uintptr_t)p + GRANULE - 1) & ~(GRANULE - 1);
        va.size = size;
        va.by_granule = spans;
        return true;
    }
    return false;
}

static struct span *new_span(uint64_t slot) {
    if (!block_reserve())
        return NULL;
    uint64_t bytes = slot > GRANULE ? (slot + GRANULE - 1) & ~(GRANULE - 1) : GRANULE;
    if (bytes > va.size - va.top)
        return NULL;
    struct span *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->base = va.base + va.top;
    s->slot = slot;
    s->count = slot > GRANULE ? 1 : GRANULE / slot;
    s->blocks = mmap(NULL, (size_t)s->count * sizeof *s->blocks, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->blocks == MAP_FAILED) {
        free(s);
        return NULL;
    }
    for (uint64_t g = va.top / GRANULE; g < (va.top + bytes) / GRANULE; g++)
        va.by_granule[g] = s;
    va.top += bytes;
    return s;
}

struct block *block_new(uint64_t size) {
    uint64_t slot;
    if (size > 1ull << 46)
        return NULL;
    unsigned c = class_of(size, &slot);
    struct block *b = va.free_list[c];
    if (b) {
        va.free_list[c] = b->next;
    } else {
        struct span *s = va.current[c];
        if (!s || s->fresh == s->count) {
            if (!(s = new_span(slot)))
                return NULL;
            va.current[c] = s;
        }
        b = &s->blocks[s->fresh];
        b->base = s->base + s->fresh++ * slot;
        b->span = s;
    }
    *b = (struct block){.base = b->base, .span = b->span, .size = size, .id = ++va.next_id};
    return b;
}

// Converts an address to 32 bits. Distances begin at 512, so that none is 0.
bool block_short(CUdeviceptr p, unsigned *out) {
    uint64_t distance = p - va.base + (1u << MIN_SHIFT);
    *out = (unsigned)distance;
    return distance <= UINT32_MAX;
}

CUdeviceptr block_long(unsigned p) {
    return p ? va.base + p - (1u << MIN_SHIFT) : 0;
}

void block_renew(struct block *b) {
    b->id = ++va.next_id;
}

bool block_address(CUdeviceptr p) {
    return p >= va.base && p - va.base < va.size;
}

struct block *block_find(CUdeviceptr p) {
    if (p < va.base || p - va.base >= va.top)
        return NULL;
    struct span *s = va.by_granule[(p - va.base) / GRANULE];
    uint64_t i = (p - s->base) / s->slot;
    if (i >= s->fresh)
        return NULL;
    struct block *b = &s->blocks[i];
    return b->size && p - b->base < b->size ? b : NULL;
}

struct block *block_exact(CUdeviceptr p) {
    struct block *b = block_find(p);
    return b && b->base == p ? b : NULL;
}

void block_drop(struct block *b) {
    uint64_t slot;
    // Gives pages back to the kernel if the block was touched. The program may have touched managed
    // and host memory itself. Pages that other blocks share stay.
    if (b->touched || b->kind == BLOCK_MANAGED || b->kind == BLOCK_HOST) {
        CUdeviceptr first = (b->base + PAGE - 1) & ~(PAGE - 1);
        CUdeviceptr end = (b->base + b->span->slot) & ~(PAGE - 1);
        if (first < end)
            madvise((void *)(uintptr_t)first, (size_t)(end - first), MADV_DONTNEED);
    }
    unsigned c = class_of(b->size, &slot);
    b->size = 0;
    b->next = va.free_list[c];
    va.free_list[c] = b;
}

void block_each(bool (*want)(struct block *, void *), void *arg, void (*act)(struct block *)) {
    struct span *last = NULL;
    for (uint64_t g = 0; g < va.top / GRANULE; g++) {
        struct span *s = va.by_granule[g];
        if (s == last)
            continue;
        last = s;
        for (uint64_t i = 0; i < s->fresh; i++)
            if (s->blocks[i].size && want(&s->blocks[i], arg))
                act(&s->blocks[i]);
    }
}
