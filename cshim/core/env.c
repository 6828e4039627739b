// SPDX-License-Identifier: Apache-2.0
// Parses the GPUARB_ variables into struct ga_env. environ.c finds the variables.
#include "core/env.h"

#include "core/environ.h"
#include "core/log.h"
#include "core/os.h"

// A file that containers have whose job is bound to their cgroup: programs are then refused as long
// as no daemon has said otherwise. The container's environment has no say in that, because its user
// chooses it. `gpuarb cdi generate` has the file mounted, beside the library.
#define CLOSED_MARKER "/usr/lib/gpuarb/bound/on-loss-closed"

static char upper(char c) {
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

// Returns the shift of a unit letter; all units are powers of 1024. −1: not a unit.
static int unit_shift(char c) {
    static const char units[] = "BKMGT";
    for (int i = 0; units[i]; i++)
        if (units[i] == upper(c))
            return 10 * i;
    return -1;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static const char *skip_spaces(const char *s) {
    while (*s == ' ' || (*s >= '\t' && *s <= '\r'))
        s++;
    return s;
}

// Decimal number as it is written, such as "12.345".
struct decimal {
    const char *whole;
    const char *fraction; // first digit after the point; equal to end if there is no point
    // first byte after the number
    const char *end;
};

static bool read_decimal(const char *s, struct decimal *d) {
    d->whole = s = skip_spaces(s);
    while (is_digit(*s))
        s++;
    if (s == d->whole)
        return false;
    d->fraction = d->end = s;
    if (*s != '.')
        return true;
    d->fraction = ++s;
    while (is_digit(*s))
        s++;
    d->end = s;
    return s > d->fraction;
}

#define MOST                                                                                       \
    (UINT64_MAX >>                                                                                 \
     1) // as in Go. All its bits are ones, so the fraction of a unit always fits in below it

// Computes the number times 2^shift, rounded down. False: it is too large. *exact: nothing was
// rounded.
static bool scale(const struct decimal *d, int shift, uint64_t *value, bool *exact) {
    uint64_t whole = 0;
    uint64_t part = 0;
    for (const char *s = d->whole; is_digit(*s); s++) {
        uint64_t digit = (uint64_t)(*s - '0');
        if (whole > (MOST - digit) / 10)
            return false;
        whole = whole * 10 + digit;
    }
    if (whole > MOST >> shift)
        return false;
    *exact = true;
    for (const char *s = d->end; s > d->fraction;
         s--) { // from the last digit on, so that no digit is lost
        part += (uint64_t)(s[-1] - '0') << shift;
        *exact = *exact && part % 10 == 0;
        part /= 10;
    }
    *value = (whole << shift) + part;
    return true;
}

static bool is_max(const char *s) {
    s = skip_spaces(s);
    return upper(s[0]) == 'M' && upper(s[1]) == 'A' && upper(s[2]) == 'X' && !*skip_spaces(s + 3);
}

// Parses a size as accounting.ParseSize does; accounting/testdata/sizes.tsv tests both.
bool ga_env_size(const char *text, uint64_t *bytes) {
    struct decimal d;
    bool exact;
    if (is_max(text)) {
        *bytes = GA_NO_LIMIT;
        return true;
    }
    if (!read_decimal(text, &d))
        return false;
    const char *s = skip_spaces(d.end);
    int shift = 0;
    if (*s) {
        shift = unit_shift(*s++);
        if (shift < 0)
            return false;
        if (shift > 0 && upper(*s) == 'I' && upper(s[1]) == 'B')
            s++;
        if (shift > 0 && upper(*s) == 'B')
            s++;
    }
    return !*skip_spaces(s) && scale(&d, shift, bytes, &exact) && (exact || shift > 0);
}

bool ga_env_share(const char *text, uint32_t *per_mille) {
    struct decimal d;
    uint64_t value;
    bool exact;
    if (!read_decimal(text, &d) || *skip_spaces(d.end) != '%' ||
        *skip_spaces(skip_spaces(d.end) + 1))
        return false;
    // Only tenths of a per cent: later digits must be 0.
    for (const char *s = d.fraction + 1; s < d.end; s++)
        if (*s != '0')
            return false;
    uint64_t tenth = d.end > d.fraction ? (uint64_t)(*d.fraction - '0') : 0;
    struct decimal whole = {d.whole, d.end, d.end};
    if (!scale(&whole, 0, &value, &exact) || value > 100 || value * 10 + tenth > 1000)
        return false;
    *per_mille = (uint32_t)(value * 10 + tenth);
    return true;
}

static bool read_token(const char *text, uint8_t token[16]) {
    if (ga_os_length(text) != 32)
        return false;
    for (size_t i = 0; i < 16; i++) {
        int high = ga_os_unhex(text[2 * i]);
        int low = ga_os_unhex(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        token[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

// Notes a limit whose size cannot be parsed. Device memory is then refused, because running without
// the limit would be the opposite of what the user meant.
static void note_malformed(struct ga_env *env, const char *name, const char *value,
                           const char *what) {
    ga_log("%s=%s is no %s", name, value, what);
    if (!env->malformed) {
        env->malformed = name;
        env->malformed_kind = what;
        ga_log_format(env->malformed_value, sizeof env->malformed_value, "%s", value);
    }
}

// Reads a number of at least 1; 0: the variable is not set. Raises smaller numbers to 1, and lowers
// larger ones to UINT32_MAX.
static uint32_t read_count(const char *name) {
    const char *text = ga_environ_get(name);
    if (!text || !*text)
        return 0;
    bool negative = *text == '-';
    uint64_t count = 0;
    size_t i = negative;
    for (; text[i] >= '0' && text[i] <= '9'; i++)
        if (count <= UINT32_MAX)
            count = count * 10 + (uint64_t)(text[i] - '0');
    if (text[i] || i == (size_t)negative) {
        ga_log("%s=%s is not a whole number; ignored", name, text);
        return 0;
    }
    count = negative ? 0 : count;
    return count < 1 ? 1 : count > UINT32_MAX ? UINT32_MAX : (uint32_t)count;
}

#define SIZE "size; write 4G, 4GiB, 512M, bytes or max"
#define SIZE_OR_SHARE "size; write 4G, 4GiB, 512M, bytes, 25% or max"

static uint64_t read_size(struct ga_env *env, const char *name) {
    const char *text = ga_environ_get(name);
    uint64_t bytes = GA_NO_LIMIT;
    if (text && *text && !ga_env_size(text, &bytes))
        note_malformed(env, name, text, SIZE);
    return bytes;
}

static void read_limits(struct ga_env *env) {
    env->hello.memory = GA_NO_LIMIT;
    const char *memory = ga_environ_get("GPUARB_MEMORY");
    if (memory && *memory && ga_env_share(memory, &env->hello.share)) {
        if (env->hello.share == 0)
            env->hello.memory = 0; // a share of 0 means no memory at all
    } else if (memory && *memory && !ga_env_size(memory, &env->hello.memory)) {
        note_malformed(env, "GPUARB_MEMORY", memory, SIZE_OR_SHARE);
    }
    env->host = read_size(env, "GPUARB_HOST");
    env->hello.streams = read_count("GPUARB_STREAMS");
    env->hello.slots = read_count("GPUARB_SLOTS");
    env->hello.stream_reserve = read_size(env, "GPUARB_STREAM_RESERVE");
    if (env->hello.stream_reserve == 0)
        env->hello.stream_reserve = GA_NO_LIMIT; // no reserve of its own
    else if (env->hello.stream_reserve > GA_CREDIT_LIMIT &&
             env->hello.stream_reserve != GA_NO_LIMIT)
        env->hello.stream_reserve = GA_CREDIT_LIMIT;
}

// Returns the position of the value in a list of words, from 1 on; 0: not set, or not in the list.
static uint32_t read_word(const char *name, const char *const words[], size_t count) {
    const char *value = ga_environ_get(name);
    if (!value || !*value)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (ga_os_equal(value, words[i]))
            return (uint32_t)i + 1;
    ga_log("%s=%s is none of its words (%s, %s, …); ignored", name, value, words[0], words[1]);
    return 0;
}

static void read_arbitration(struct ga_env *env) {
    const char *const on_full[] = {"deny", "wait"};
    const char *const scopes[] = {"job", "process", "thread"};
    _Static_assert(GA_ON_FULL_DENY == 1 && GA_ON_FULL_WAIT == 2, "on_full");
    _Static_assert(GA_SCOPE_JOB == 1 && GA_SCOPE_PROCESS == 2 && GA_SCOPE_THREAD == 3, "scopes");
    env->hello.on_full = read_word("GPUARB_ON_FULL", on_full, 2);
    env->hello.slot_scope = read_word("GPUARB_SLOT_SCOPE", scopes, 3);
    const char *first = ga_environ_get("GPUARB_REFUSE_FIRST");
    if (first && *first)
        env->refuse_first = ga_environ_set(first) ? GA_FIRST_REFUSED : GA_FIRST_WAITS;
}

static bool join_path(char to[108], const char *folder, const char *file) {
    size_t a = ga_os_length(folder);
    size_t b = ga_os_length(file);
    if (a == 0 || a + b >= 108) {
        to[0] = '\0';
        return false;
    }
    ga_os_copy(to, folder, a);
    ga_os_copy(to + a, file, b + 1);
    return true;
}

static void read_socket(struct ga_env *env) {
    const char *own = ga_environ_get("GPUARB_SOCKET");
    if (own && *own) {
        if (!join_path(env->socket[0], own, ""))
            ga_log("GPUARB_SOCKET is longer than a socket's path can be");
        return;
    }
    int next = 0;
    const char *runtime = ga_environ_get("XDG_RUNTIME_DIR");
    if (runtime && join_path(env->socket[0], runtime, "/gpuarb/gpuarb.sock"))
        next = 1;
    join_path(env->socket[next], "/run/gpuarb", "/gpuarb.sock");
    join_path(env->socket[next + 1], "/run/gpuarb/client", "/gpuarb.sock"); // in containers
}

void ga_env_read(struct ga_env *env) {
    ga_os_zero(env, sizeof *env);
    ga_log_read_environment();
    env->hello.kind = GA_KIND_SHIM;
    const char *virtualize = ga_environ_get("GPUARB_VIRTUALIZE");
    env->virtualize = !virtualize || !*virtualize || ga_environ_set(virtualize);
    const char *job = ga_environ_get("GPUARB_JOB");
    if (job && *job) {
        env->in_job = read_token(job, env->hello.job);
        if (!env->in_job) {
            ga_os_zero(env->hello.job, sizeof env->hello.job);
            ga_log("GPUARB_JOB is not a token of 32 hex digits; ignored");
        }
    }
    bool marked = ga_os_exists(CLOSED_MARKER);
    env->loss_closed = env->in_job || marked;
    const char *loss = ga_environ_get("GPUARB_ON_LOSS");
    if (loss && ga_os_equal(loss, "open"))
        env->loss_closed = marked;
    else if (loss && ga_os_equal(loss, "closed"))
        env->loss_closed = env->loss_named_closed = true;
    else if (loss && *loss)
        ga_log("GPUARB_ON_LOSS=%s is neither open nor closed; ignored", loss);
    read_limits(env);
    read_arbitration(env);
    read_socket(env);
}
