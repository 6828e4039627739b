// SPDX-License-Identifier: Apache-2.0
// Formats lines in buffers on the stack, and writes them. The settings are read once.
#include "core/log.h"

#include <stdarg.h>
#include <stdatomic.h>

#include "core/environ.h"
#include "core/os.h"
#include "core/wire.h"

#define LINE_SIZE 640

struct line {
    char *text;
    size_t used;
    size_t size;
};

// Appends a character. Non-printable characters become spaces, so that text from outside stays on
// one line.
static void put(struct line *l, char c) {
    if (l->used + 1 < l->size)
        l->text[l->used++] = (uint8_t)c < 0x20 || c == 0x7f ? ' ' : c;
}

static void put_number(struct line *l, uint64_t value, unsigned base) {
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value);
    while (n > 0)
        put(l, digits[--n]);
}

static void put_signed(struct line *l, int64_t value) {
    if (value < 0)
        put(l, '-');
    put_number(l, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10);
}

// Formats a line. Every number has 64 bits, so callers must cast.
static void format(struct line *l, const char *f, va_list args) {
    for (; *f; f++) {
        if (*f != '%') {
            put(l, *f);
            continue;
        }
        switch (*++f) {
        case 's':
            for (const char *s = va_arg(args, const char *); s && *s; s++)
                put(l, *s);
            break;
        case 't': {
            const char *text = va_arg(args, const void *);
            for (size_t i = 0; i < GA_TEXT_SIZE && text[i]; i++)
                put(l, text[i]);
            break;
        }
        case 'u':
            put_number(l, va_arg(args, uint64_t), 10);
            break;
        case 'x':
            put_number(l, va_arg(args, uint64_t), 16);
            break;
        case 'd':
            put_signed(l, va_arg(args, int64_t));
            break;
        case '%':
            put(l, '%');
            break;
        default:
            return;
        }
    }
}

size_t ga_log_format(char *text, size_t size, const char *f, ...) {
    struct line l = {text, 0, size};
    va_list args;
    va_start(args, f);
    format(&l, f, args);
    va_end(args);
    text[l.used] = '\0';
    return l.used;
}

// Begins a line "gpuarb: …". A line is written at once, so that lines of several processes stay
// whole.
static void start_line(struct line *l, char *buffer, bool with_pid) {
    *l = (struct line){buffer, 0, LINE_SIZE - 1};
    for (const char *s = "gpuarb: "; *s; s++)
        put(l, *s);
    if (with_pid) {
        put(l, '[');
        put_number(l, (uint64_t)ga_os_pid(), 10);
        put(l, ']');
        put(l, ' ');
    }
}

// Formats a line from a function's last named parameter f and its variable arguments.
#define FORMAT_LINE(l, buffer, with_pid, f)                                                        \
    do {                                                                                           \
        va_list args;                                                                              \
        start_line(l, buffer, with_pid);                                                           \
        va_start(args, f);                                                                         \
        format(l, f, args);                                                                        \
        va_end(args);                                                                              \
    } while (0)

// Longest wait for a reader that does not read its pipe; then the line is lost. A pipe that is
// ready takes the whole line.
#define PATIENCE_MS 100

static void end_line(struct line *l, int fd) {
    l->text[l->used++] = '\n';
    ga_os_write(fd, l->text, l->used, PATIENCE_MS);
}

// The values of GPUARB_LOG and GPUARB_QUIET at the first GPU call, or before the first line if that
// comes earlier. They are copies, because another thread may change the environment at any time.
// The thread that moves state from NOT_READ to its process's ID writes the rest, then sets state to
// READ; the other threads read the rest only after that. A child that is forked in between has
// another ID and lacks that thread, so it reads them itself.
static struct {
    _Atomic uint32_t state; // NOT_READ, READ, or the ID of the process that reads them
    bool quiet;
    char where[4096]; // "": ga_log writes nothing
} settings;
#define NOT_READ 0u
#define READ UINT32_MAX // not the ID of any process

void ga_log_read_environment(void) {
    uint32_t state = atomic_load(&settings.state);
    if (state == READ)
        return;
    uint32_t reader = (uint32_t)ga_os_pid();
    if (state == reader || !atomic_compare_exchange_strong(&settings.state, &state, reader))
        return;
    const char *where = ga_environ_get("GPUARB_LOG");
    size_t length = where ? ga_os_length(where) : 0;
    if (length >= sizeof settings.where || (length > 0 && ga_os_equal(where, "0")))
        length = 0;
    if (length > 0)
        ga_os_copy(settings.where, where, length);
    settings.where[length] = '\0';
    settings.quiet = ga_environ_set(ga_environ_get("GPUARB_QUIET"));
    atomic_store(&settings.state, READ);
}

// Reports whether the settings are known; reads them, or waits up to some 10 ms for the thread that
// does. False: that thread did not come to its end in this time. It may have ended, or it is this
// thread, which a signal handler has interrupted.
static bool know_settings(void) {
    ga_log_read_environment();
    for (int sleeps = 0; atomic_load(&settings.state) != READ; sleeps++) {
        if (sleeps == 200)
            return false;
        ga_os_sleep_us(50);
    }
    return true;
}

void ga_log(const char *f, ...) {
    static _Atomic uint32_t lines;
    if (!know_settings() || !settings.where[0])
        return;
    const char *where = settings.where;
    if (atomic_fetch_add_explicit(&lines, 1, memory_order_relaxed) >= GA_LOG_LINES)
        return;
    char buffer[LINE_SIZE];
    struct line l;
    FORMAT_LINE(&l, buffer, true, f);
    if (ga_os_equal(where, "stderr")) {
        end_line(&l, 2);
        return;
    }
    // Opened for each line: messages are few, and the library keeps no descriptor.
    int fd = ga_os_open_append(where);
    if (fd >= 0) {
        end_line(&l, fd);
        ga_os_close(fd);
    }
}

void ga_log_user(const char *f, ...) {
    char buffer[LINE_SIZE];
    struct line l;
    FORMAT_LINE(&l, buffer, false, f);
    if (know_settings() && !settings.quiet)
        end_line(&l, 2);
}
