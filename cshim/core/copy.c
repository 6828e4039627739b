// SPDX-License-Identifier: Apache-2.0
// Functions that the compiler calls to copy, clear and compare structures. libc's versions are
// replaced by sanitizers, which check each byte and may not be ready when the library is called.
// These versions are visible only inside this library.
#include <stddef.h>
#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden"), used))

typedef uint64_t __attribute__((may_alias, aligned(1))) word;

HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t size);
HIDDEN void *memmove(void *to, const void *from, size_t size);
HIDDEN void *memset(void *at, int value, size_t size);
HIDDEN int memcmp(const void *a, const void *b, size_t size);

// Copies from low to high addresses.
static void copy(unsigned char *to, const unsigned char *from, size_t size) {
    for (; size >= sizeof(word); size -= sizeof(word)) {
        *(word *)to = *(const word *)from;
        to += sizeof(word);
        from += sizeof(word);
    }
    while (size-- > 0)
        *to++ = *from++;
}

HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t size) {
    copy(to, from, size);
    return to;
}

HIDDEN void *memmove(void *to, const void *from, size_t size) {
    unsigned char *t = to;
    const unsigned char *f = from;
    if ((uintptr_t)t - (uintptr_t)f >= size) {
        copy(t, f, size);
        return to;
    }
    while (size-- > 0)
        t[size] = f[size];
    return to;
}

HIDDEN void *memset(void *at, int value, size_t size) {
    unsigned char *a = at;
    word pattern = (unsigned char)value * 0x0101010101010101u;
    for (; size >= sizeof(word); size -= sizeof(word)) {
        *(word *)a = pattern;
        a += sizeof(word);
    }
    while (size-- > 0)
        *a++ = (unsigned char)value;
    return at;
}

HIDDEN int memcmp(const void *a, const void *b, size_t size) {
    const unsigned char *x = a;
    const unsigned char *y = b;
    for (size_t i = 0; i < size; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}
