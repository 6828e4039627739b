// SPDX-License-Identifier: Apache-2.0
// Finds the loader's functions by reading the symbol tables of loaded objects, and asks the loader
// about objects.
#include "hook/loader.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include "core/os.h"

#if defined(__x86_64__)
#define CLOCK_GETTIME "__vdso_clock_gettime"
#else
#define CLOCK_GETTIME "__kernel_clock_gettime"
#endif

void *ga_loader_next_dlsym;
void *ga_loader_next_dlvsym;

static struct ga_loader loader;
static _Atomic bool ready;

// Parts of an object's dynamic section that a symbol look-up needs.
struct symbols {
    const ElfW(Sym) * table;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *hash; // hash table of the older kind, which the vDSO may have instead
    ElfW(Addr) base;
};

// Returns the address that an entry of the dynamic section holds. glibc relocates these entries in
// place; other loaders and the vDSO do not.
static const void *at(ElfW(Addr) base, ElfW(Addr) value) {
    return (const void *)(value < base ? base + value : value);
}

static bool read_dynamic(const ElfW(Dyn) * dynamic, ElfW(Addr) base, struct symbols *s) {
    *s = (struct symbols){.base = base};
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_SYMTAB)
            s->table = at(s->base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_STRTAB)
            s->strings = at(s->base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_GNU_HASH)
            s->gnu_hash = at(s->base, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_HASH)
            s->hash = at(s->base, dynamic->d_un.d_ptr);
    }
    return s->table && s->strings && (s->gnu_hash || s->hash);
}

static void *symbol_at(const struct symbols *s, const ElfW(Sym) * sym, unsigned type,
                       const char *name) {
    if (sym->st_shndx == SHN_UNDEF || (sym->st_info & 0xf) != type ||
        !ga_os_equal(s->strings + sym->st_name, name))
        return NULL;
    return (void *)(s->base + sym->st_value);
}

// Finds a symbol in the GNU hash table: buckets of chains, whose last hash has bit 0 set.
static void *find_hashed(const struct symbols *s, unsigned type, const char *name) {
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
        uint32_t hash = chain[i - first];
        void *found = ((hash ^ h) >> 1) == 0 ? symbol_at(s, &s->table[i], type, name) : NULL;
        if (found || (hash & 1))
            return found;
    }
}

// Finds a function. Of the older hash table it uses only the number of symbols, because the vDSO
// has few.
static void *symbol_of(const struct symbols *s, const char *name) {
    if (s->gnu_hash)
        return find_hashed(s, STT_FUNC, name);
    void *found = NULL;
    for (uint32_t i = 0; i < s->hash[1] && !found; i++)
        found = symbol_at(s, &s->table[i], STT_FUNC, name);
    return found;
}

static const char *file_name(const char *path) {
    const char *name = path;
    for (; *path; path++)
        if (*path == '/')
            name = path + 1;
    return name;
}

// Reports whether a file has the loader's functions: glibc's, or musl's. No driver runs in programs
// built for musl, but this library is loaded there, and must answer their look-ups.
static bool has_loader(const char *name) {
    return ga_os_begins(name, "ld-musl-") || ga_os_equal(name, "libc.so.6") ||
           ga_os_equal(name, "libdl.so.2") || ga_os_equal(name, "libc.so");
}

// Records by which debuggers find the loaded objects; all dynamic loaders have one. glibc's loader
// has the record itself, musl's a pointer to it. Being data, it is not replaced by interposed
// libraries, and it needs no library of its own.
extern __attribute__((weak)) struct r_debug _r_debug;
extern __attribute__((weak)) struct r_debug *_dl_debug_addr;

static const struct link_map *first_object(void) {
    if (&_r_debug)
        return _r_debug.r_map;
    return &_dl_debug_addr && _dl_debug_addr ? _dl_debug_addr->r_map : NULL;
}

// Copies the functions that an object has. ISO C has no conversion from object to function
// pointers, but POSIX relies on it.
static void copy_functions(const struct symbols *s, struct ga_loader *l) {
    if (!l->dlsym)
        l->dlsym = (void *(*)(void *, const char *))symbol_of(s, "dlsym");
    if (!l->dlvsym)
        l->dlvsym = (void *(*)(void *, const char *, const char *))symbol_of(s, "dlvsym");
    if (!l->dlopen)
        l->dlopen = (void *(*)(const char *, int))symbol_of(s, "dlopen");
    if (!l->dlclose)
        l->dlclose = (int (*)(void *))symbol_of(s, "dlclose");
    if (!l->dladdr)
        l->dladdr = (int (*)(const void *, void *))symbol_of(s, "dladdr");
    if (!l->iterate)
        l->iterate = (ga_loader_iterate *)symbol_of(s, "dl_iterate_phdr");
}

static bool is_complete(const struct ga_loader *l) {
    return l->dlsym && l->dlvsym && l->dlopen && l->dlclose && l->dladdr && l->iterate;
}

// Searches the loaded objects without the loader's lock, which only the loader can take. This is
// safe, because the objects searched for are loaded at the program's start, stay loaded, and come
// first in the list, so the search ends before objects that may be unloaded. There are two
// exceptions: glibc before 2.34 has most of these functions in a library that a program may load
// late, and musl has no dlvsym. There the search goes to the last object.
static void search(struct ga_loader *found) {
    for (const struct link_map *o = first_object(); o && !is_complete(found); o = o->l_next) {
        struct symbols s;
        const char *name = o->l_name ? file_name(o->l_name) : "";
        if (ga_os_equal(name, "linux-vdso.so.1") && read_dynamic(o->l_ld, o->l_addr, &s))
            ga_os_use_clock((ga_os_clock *)symbol_of(&s, CLOCK_GETTIME));
        else if (has_loader(name) && read_dynamic(o->l_ld, o->l_addr, &s))
            copy_functions(&s, found);
    }
}

// Fills in `loader`. Several threads may run this at once, with one result.
static GA_NOINLINE void look_up(void) {
    struct ga_loader found = {0};
    search(&found);
    loader = found;
    if (!found.dlsym)
        return;
    void *next = found.dlsym(RTLD_NEXT, "dlsym");
    void *next_v = found.dlsym(RTLD_NEXT, "dlvsym");
    ga_loader_next_dlsym = next ? next : (void *)found.dlsym;
    ga_loader_next_dlvsym = next_v ? next_v : (void *)found.dlvsym;
    atomic_store_explicit(&ready, true, memory_order_release);
}

static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info) {
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return NULL;
}

// Visits all objects under the loader's lock. Calls the loader's own dl_iterate_phdr, not a
// program's replacement.
static void iterate(int (*visit)(struct dl_phdr_info *, size_t, void *), void *arg) {
    const struct ga_loader *l = ga_loader_get();
    if (l->iterate)
        l->iterate(visit, arg);
}

// Question which of two comes first in the search order: an address, or this library.
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
    iterate(visit_order, &order);
    return order.first;
}

// Reads from an object's dynamic section its SONAME, and whether it finds its own functions first.
static void read_names(const struct dl_phdr_info *info, struct ga_loader_object *object) {
    const char *strings = NULL;
    ElfW(Xword) soname = 0;
    for (const ElfW(Dyn) *d = dynamic_of(info); d && d->d_tag != DT_NULL; d++) {
        object->symbolic |=
            d->d_tag == DT_SYMBOLIC || (d->d_tag == DT_FLAGS && (d->d_un.d_val & DF_SYMBOLIC) != 0);
        if (d->d_tag == DT_STRTAB)
            strings = at(info->dlpi_addr, d->d_un.d_ptr);
        else if (d->d_tag == DT_SONAME)
            soname = d->d_un.d_val;
    }
    object->soname = strings && soname ? strings + soname : NULL;
}

struct asked {
    const void *address;
    struct ga_loader_object *object;
};

// Fills in an object's range. A loader reserves the whole range at once, so no other object lies
// inside it.
static int visit_object(struct dl_phdr_info *info, size_t size, void *arg) {
    const struct asked *asked = arg;
    struct ga_loader_object *object = asked->object;
    (void)size;
    if (!contains(info, asked->address))
        return 0;
    object->first = UINTPTR_MAX;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t begins = info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD)
            continue;
        if (begins < object->first)
            object->first = begins;
        if (begins + p->p_memsz > object->end)
            object->end = begins + p->p_memsz;
    }
    read_names(info, object);
    return 1;
}

bool ga_loader_object(const void *address, struct ga_loader_object *object) {
    *object = (struct ga_loader_object){.end = 0};
    iterate(visit_object, &(struct asked){address, object});
    return object->end != 0;
}

struct variable {
    const void *address;
    const char *name;
    bool found;
};

static int visit_variable(struct dl_phdr_info *info, size_t size, void *arg) {
    struct variable *v = arg;
    struct symbols s;
    (void)size;
    if (!contains(info, v->address))
        return 0;
    v->found = read_dynamic(dynamic_of(info), info->dlpi_addr, &s) && s.gnu_hash &&
               find_hashed(&s, STT_OBJECT, v->name);
    return 1;
}

bool ga_loader_has_variable(const void *address, const char *name, uintptr_t *at) {
    struct variable v = {.address = address, .name = name};
    struct ga_loader_object object;
    iterate(visit_variable, &v);
    if (!v.found || !ga_loader_object(address, &object) || object.symbolic)
        return false;
    *at = object.first;
    return true;
}

static int visit_count(struct dl_phdr_info *info, size_t size, void *arg) {
    if (size >= offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs)
        *(uint64_t *)arg = info->dlpi_subs;
    return 1; // all objects report the same number
}

uint64_t ga_loader_unloaded(void) {
    uint64_t count = 0;
    iterate(visit_count, &count);
    return count;
}

// Symbols of the linker: begin and end of this library.
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

bool ga_loader_is_own(const void *address) {
    return (uintptr_t)address >= (uintptr_t)__ehdr_start && (uintptr_t)address < (uintptr_t)_end;
}

const struct ga_loader *ga_loader_get(void) {
    if (GA_UNLIKELY(!atomic_load_explicit(&ready, memory_order_acquire)))
        look_up();
    return &loader;
}
