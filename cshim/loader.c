// SPDX-License-Identifier: Apache-2.0
#include "loader.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include "os.h"

void *ga_loader_next_dlsym;
void *ga_loader_next_dlvsym;

static struct ga_loader loader;
static _Atomic bool ready;

// What a lookup by hand needs of an object's dynamic section.
struct symbols {
    const ElfW(Sym) * table;
    const char *strings;
    const uint32_t *gnu_hash;
    ElfW(Addr) base;
};

// glibc relocates these entries in place; other loaders, and the vDSO, do not.
static const void *at(ElfW(Addr) base, ElfW(Addr) value) {
    return (const void *)(value < base ? base + value : value);
}

static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info) {
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return NULL;
}

static bool read_dynamic(const struct dl_phdr_info *info, struct symbols *s) {
    const ElfW(Dyn) *dynamic = dynamic_of(info);
    *s = (struct symbols){.base = info->dlpi_addr};
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_SYMTAB)
            s->table = at(s->base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_STRTAB)
            s->strings = at(s->base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_GNU_HASH)
            s->gnu_hash = at(s->base, dynamic->d_un.d_ptr);
    }
    return s->table && s->strings && s->gnu_hash;
}

// The GNU hash table: buckets of chains, whose last hash has bit 0 set.
static void *find(const struct symbols *s, const char *name) {
    uint32_t h = 5381;
    for (const char *c = name; *c; c++)
        h = h * 33 + (unsigned char)*c;
    uint32_t buckets = s->gnu_hash[0];
    uint32_t first = s->gnu_hash[1];
    const uint32_t *bucket = s->gnu_hash + 4 + s->gnu_hash[2] * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = bucket + buckets;
    uint32_t i = buckets ? bucket[h % buckets] : 0;
    if (i < first)
        return NULL;
    for (;; i++) {
        const ElfW(Sym) *sym = &s->table[i];
        if (((chain[i - first] ^ h) >> 1) == 0 && sym->st_shndx != SHN_UNDEF &&
            (sym->st_info & 0xf) == STT_FUNC && ga_os_equal(s->strings + sym->st_name, name))
            return (void *)(s->base + sym->st_value);
        if (chain[i - first] & 1)
            return NULL;
    }
}

static const char *file_name(const char *path) {
    const char *name = path;
    for (; *path; path++)
        if (*path == '/')
            name = path + 1;
    return name;
}

// glibc's, or that of a program built for musl: no driver comes to such a one, but this library
// does, and its look-ups are to be answered.
static bool has_loader(const char *name) {
    static const char musl[] = "ld-musl-";
    size_t i = 0;
    while (musl[i] && name[i] == musl[i])
        i++;
    return !musl[i] || ga_os_equal(name, "libc.so.6") || ga_os_equal(name, "libdl.so.2") ||
           ga_os_equal(name, "libc.so");
}

static int visit(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    struct ga_loader *l = arg;
    struct symbols s;
    if (!info->dlpi_name || !has_loader(file_name(info->dlpi_name)))
        return 0;
    if (!read_dynamic(info, &s))
        return 0;
    // The standard has no conversion from object to function pointers; POSIX relies on it.
    if (!l->dlsym)
        l->dlsym = (void *(*)(void *, const char *))find(&s, "dlsym");
    if (!l->dlvsym)
        l->dlvsym = (void *(*)(void *, const char *, const char *))find(&s, "dlvsym");
    if (!l->dlopen)
        l->dlopen = (void *(*)(const char *, int))find(&s, "dlopen");
    if (!l->dlclose)
        l->dlclose = (int (*)(void *))find(&s, "dlclose");
    if (!l->dladdr)
        l->dladdr = (int (*)(const void *, void *))find(&s, "dladdr");
    return 0;
}

// Several threads may do this at once: all find the same.
static GA_NOINLINE void look_up(void) {
    struct ga_loader found = {0};
    dl_iterate_phdr(visit, &found);
    loader = found;
    if (!found.dlsym)
        return;
    void *next = found.dlsym(RTLD_NEXT, "dlsym");
    void *next_v = found.dlsym(RTLD_NEXT, "dlvsym");
    ga_loader_next_dlsym = next ? next : (void *)found.dlsym;
    ga_loader_next_dlvsym = next_v ? next_v : (void *)found.dlvsym;
    atomic_store_explicit(&ready, true, memory_order_release);
}

// Whose turn it is in the order of search: an address, or this library.
struct order {
    const void *address;
    bool first;
};

static bool contains(const struct dl_phdr_info *info, const void *address) {
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        ElfW(Addr) offset = (ElfW(Addr))address - info->dlpi_addr - p->p_vaddr;
        if (p->p_type == PT_LOAD && offset < p->p_memsz)
            return true;
    }
    return false;
}

static int visit_order(struct dl_phdr_info *info, size_t size, void *arg) {
    struct order *order = arg;
    (void)size;
    order->first = contains(info, order->address);
    return order->first || contains(info, &loader);
}

bool ga_loader_precedes(const void *address) {
    struct order order = {.address = address};
    dl_iterate_phdr(visit_order, &order);
    return order.first;
}

struct binding {
    const void *base;
    bool symbolic;
};

static int visit_binding(struct dl_phdr_info *info, size_t size, void *arg) {
    struct binding *binding = arg;
    (void)size;
    if (!contains(info, binding->base))
        return 0;
    for (const ElfW(Dyn) *d = dynamic_of(info); d && d->d_tag != DT_NULL; d++)
        binding->symbolic |=
            d->d_tag == DT_SYMBOLIC || (d->d_tag == DT_FLAGS && (d->d_un.d_val & DF_SYMBOLIC) != 0);
    return 1;
}

bool ga_loader_symbolic(const void *base) {
    struct binding binding = {.base = base};
    dl_iterate_phdr(visit_binding, &binding);
    return binding.symbolic;
}

static int visit_ours(struct dl_phdr_info *info, size_t size, void *arg) {
    const void **address = arg;
    (void)size;
    if (!contains(info, &loader))
        return 0;
    *address = contains(info, *address) ? *address : NULL;
    return 1;
}

bool ga_loader_ours(const void *address) {
    return dl_iterate_phdr(visit_ours, &address) == 1 && address != NULL;
}

const struct ga_loader *ga_loader_get(void) {
    if (GA_UNLIKELY(!atomic_load_explicit(&ready, memory_order_acquire)))
        look_up();
    return &loader;
}
