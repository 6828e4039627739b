// SPDX-License-Identifier: Apache-2.0
// The table of allocators that keep freed memory, and the search for their files among the mapped
// files of the process. The loader's own list is not used: its lock may be held by a thread that
// waits for this one.
#include "cuda/allocators.h"

#include "core/os.h"

// Names of their files, without the prefix "lib", and of their Python packages. numba is recognised
// by llvmlite, which it loads. Only programs that use CUDA get here, so that llvmlite alone does
// not count.
static const char *const allocators[] = {"c10_cuda", "cupy", "llvmlite", "jaxlib", "tensorflow"};

#define ALLOCATORS (sizeof allocators / sizeof allocators[0])

// Reports whether a text is a name of the table, alone or before a dot, an underscore or a hyphen,
// as in "cupy_backends" and "c10_cuda.so".
static bool is_named(const char *text, const char *name) {
    if (!ga_os_begins(text, name))
        return false;
    char next = text[ga_os_length(name)];
    return next == '\0' || next == '.' || next == '_' || next == '-';
}

// State of the search. A path is read component by component, because it may be longer than any
// buffer. Of a component only the beginning is kept.
struct search {
    bool found;
    bool in_path;
    bool in_packages; // the component lies in site-packages or dist-packages of Python
    uint32_t length;
    char component[64];
};

// Notes whether a component names an allocator. Files are recognised with and without the prefix
// "lib". Folders count only if they are Python packages, so that the home of a user called "cupy"
// does not.
static void end_component(struct search *s, bool is_file) {
    s->component[s->length] = '\0';
    const char *library = ga_os_begins(s->component, "lib") ? s->component + 3 : s->component;
    for (size_t i = 0; i < ALLOCATORS; i++)
        if ((is_file && is_named(library, allocators[i])) ||
            (s->in_packages && is_named(s->component, allocators[i])))
            s->found = true;
    static const char packages[] = "-packages";
    uint32_t tail = sizeof packages - 1;
    s->in_packages = s->length >= tail && ga_os_equal(s->component + s->length - tail, packages);
    s->length = 0;
}

// Reads one character of the list. The path in a line begins with the first slash.
static void read_character(struct search *s, char c) {
    if (c == '\n') {
        if (s->in_path)
            end_component(s, true);
        s->in_path = s->in_packages = false;
    } else if (c == '/') {
        if (s->in_path)
            end_component(s, false);
        s->in_path = true;
    } else if (s->in_path && s->length < sizeof s->component - 1) {
        s->component[s->length++] = c;
    }
}

bool ga_allocators_loaded(void) {
    char text[1024];
    struct search s = {.length = 0};
    // This is the list of the calling thread, because the list of a process whose first thread has
    // ended is empty.
    int fd = ga_os_open_read("/proc/thread-self/maps");
    if (fd < 0)
        return false;
    for (long n; !s.found && (n = ga_os_read(fd, text, sizeof text)) > 0;)
        for (long i = 0; i < n; i++)
            read_character(&s, text[i]);
    ga_os_close(fd);
    return s.found;
}
