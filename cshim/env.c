// SPDX-License-Identifier: Apache-2.0
#include "env.h"

#include "log.h"
#include "os.h"
#include "wire.h"

extern char **environ;

const char *ga_env_get(const char *name) {
    size_t n = ga_os_length(name);
    if (!environ)
        return NULL;
    for (char **e = environ; *e; e++) {
        size_t i = 0;
        while (i < n && (*e)[i] == name[i])
            i++;
        if (i == n && (*e)[n] == '=')
            return *e + n + 1;
    }
    return NULL;
}

static bool is_set(const char *value) {
    return value && *value && !ga_os_equal(value, "0");
}

bool ga_env_disabled(void) {
    return is_set(ga_env_get("GPUARB_DISABLE"));
}

// Reads "12.345" as thousandths: 12345. Returns where it stopped, or NULL.
static const char *thousandths(const char *s, uint64_t *out) {
    uint64_t value = 0;
    uint64_t unit = 1000;
    bool fraction = false;
    if (*s < '0' || *s > '9')
        return NULL;
    for (; (*s >= '0' && *s <= '9') || (*s == '.' && !fraction); s++) {
        if (*s == '.') {
            fraction = true;
            continue;
        }
        uint64_t digit = (uint64_t)(*s - '0');
        if (!fraction) {
            if (value > (UINT64_MAX / 10000 - 1))
                return NULL;
            value = value * 10 + digit * 1000;
        } else {
            unit /= 10;
            value += digit * unit;
        }
    }
    *out = value;
    return s;
}

static char upper(char c) {
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

// The shift of a unit letter, all of them binary; −1: none of ours.
static int unit_shift(char c) {
    switch (upper(c)) {
    case 'B':
        return 0;
    case 'K':
        return 10;
    case 'M':
        return 20;
    case 'G':
        return 30;
    case 'T':
        return 40;
    }
    return -1;
}

bool ga_env_size(const char *text, uint64_t *bytes) {
    if (ga_os_equal(text, "max")) {
        *bytes = GA_NO_LIMIT;
        return true;
    }
    uint64_t value;
    const char *s = thousandths(text, &value);
    if (!s)
        return false;
    int shift = 0;
    if (*s) {
        shift = unit_shift(*s++);
        if (shift < 0)
            return false;
        if (shift > 0 && upper(*s) == 'I')
            s++;
        if (shift > 0 && upper(*s) == 'B')
            s++;
    }
    if (*s || (value % 1000 != 0 && shift == 0))
        return false;
    uint64_t whole = value / 1000;
    if (whole > (UINT64_MAX >> 11) >> shift)
        return false;
    *bytes = (whole << shift) + (((value % 1000) << shift) / 1000);
    return true;
}

bool ga_env_size_in_mib(const char *text, uint64_t *bytes) {
    uint64_t value = 0;
    size_t digits = 0;
    for (; text[digits] >= '0' && text[digits] <= '9'; digits++) {
        value = value * 10 + (uint64_t)(text[digits] - '0');
        if (value > GA_CREDIT_LIMIT)
            value = GA_CREDIT_LIMIT; // saturates; no digit makes it small again
    }
    bool bare = digits > 0 && !text[digits];
    if (bare)
        value = value > GA_CREDIT_LIMIT >> 20 ? GA_CREDIT_LIMIT : value << 20;
    else if (!ga_env_size(text, &value) || value == GA_NO_LIMIT)
        return false;
    if (value == 0)
        return false;
    *bytes = value < GA_CREDIT_LIMIT ? value : GA_CREDIT_LIMIT;
    return true;
}

bool ga_env_share(const char *text, uint32_t *per_mille) {
    uint64_t value;
    const char *s = thousandths(text, &value);
    if (!s || s[0] != '%' || s[1])
        return false;
    value /= 100; // thousandths of a per cent → per mille
    if (value < 1 || value > 1000)
        return false;
    *per_mille = (uint32_t)value;
    return true;
}

static int hex(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c = upper(c);
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool read_token(const char *text, uint8_t token[16]) {
    if (ga_os_length(text) != 32)
        return false;
    for (size_t i = 0; i < 16; i++) {
        int high = hex(text[2 * i]);
        int low = hex(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        token[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

// A number from 1 on; 0: there is none. What is below is 1, what no number holds is the largest.
static uint32_t read_count(const char *name) {
    const char *text = ga_env_get(name);
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

static void read_limits(struct ga_env *env) {
    env->memory = GA_NO_LIMIT;
    const char *memory = ga_env_get("GPUARB_MEMORY");
    if (memory && *memory && !ga_env_share(memory, &env->memory_mill) &&
        !ga_env_size(memory, &env->memory))
        ga_log("GPUARB_MEMORY=%s is not a size (4G, 4GiB, 512M, bytes, 25%%, max); ignored",
               memory);
    env->host = GA_NO_LIMIT;
    const char *host = ga_env_get("GPUARB_HOST");
    if (host && *host && !ga_env_size(host, &env->host))
        ga_log("GPUARB_HOST=%s is not a size (4G, 4GiB, 512M, bytes, max); ignored", host);
    env->streams = read_count("GPUARB_STREAMS");
    env->slots = read_count("GPUARB_SLOTS");
    env->stream_reserve = GA_NO_LIMIT;
    const char *reserve = ga_env_get("GPUARB_STREAM_RESERVE");
    if (reserve && *reserve && !ga_env_size_in_mib(reserve, &env->stream_reserve))
        ga_log("GPUARB_STREAM_RESERVE=%s is not a size above 0 (256 is MiB, 1G); ignored", reserve);
}

// One of the words, counted from 1; 0: none of them.
static uint32_t read_word(const char *name, const char *const words[], size_t count) {
    const char *value = ga_env_get(name);
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
    env->on_full = read_word("GPUARB_ON_FULL", on_full, 2);
    env->slot_scope = read_word("GPUARB_SLOT_SCOPE", scopes, 3);
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
    const char *own = ga_env_get("GPUARB_SOCKET");
    if (own && *own) {
        if (!join_path(env->socket[0], own, ""))
            ga_log("GPUARB_SOCKET is longer than a socket's path can be");
        return;
    }
    int next = 0;
    const char *runtime = ga_env_get("XDG_RUNTIME_DIR");
    if (runtime && join_path(env->socket[0], runtime, "/gpuarb/gpuarb.sock"))
        next = 1;
    join_path(env->socket[next], "/run/gpuarb", "/gpuarb.sock");
}

void ga_env_read(struct ga_env *env) {
    ga_os_zero(env, sizeof *env);
    const char *virtualize = ga_env_get("GPUARB_VIRTUALIZE");
    env->virtualize = !virtualize || !*virtualize || is_set(virtualize);
    const char *job = ga_env_get("GPUARB_JOB");
    if (job && *job) {
        env->in_job = read_token(job, env->job);
        if (!env->in_job)
            ga_log("GPUARB_JOB is not a token of 32 hex digits; ignored");
    }
    env->loss_closed = env->in_job;
    const char *loss = ga_env_get("GPUARB_ON_LOSS");
    if (loss && ga_os_equal(loss, "open"))
        env->loss_closed = false;
    else if (loss && ga_os_equal(loss, "closed"))
        env->loss_closed = env->loss_named_closed = true;
    else if (loss && *loss)
        ga_log("GPUARB_ON_LOSS=%s is neither open nor closed; ignored", loss);
    read_limits(env);
    read_arbitration(env);
    read_socket(env);
}
