// SPDX-License-Identifier: Apache-2.0
//
// SIMCUDA_* variables, read once by the process that creates the folder. A value that cannot be
// read fails the creation: a test must not run on a machine other than the one it asked for.

#include "sim.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool sim_parse_size(const char *text, uint64_t *bytes) {
    if (!isdigit((unsigned char)*text))
        return false;
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    unsigned shift = 0;
    switch (toupper((unsigned char)*end)) {
    case 'K':
        shift = 10;
        break;
    case 'M':
        shift = 20;
        break;
    case 'G':
        shift = 30;
        break;
    case 'T':
        shift = 40;
        break;
    default:
        break;
    }
    if (shift)
        end++;
    if (shift && end[0] == 'i')
        end++;
    if (*end == 'B')
        end++;
    if (*end || errno || n > ((uint64_t)INT64_MAX >> shift))
        return false;
    *bytes = (uint64_t)n << shift;
    return true;
}

static bool parse_number(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && !*end && !errno;
}

// A duration with a unit (ns, us, ms, s); a bare number is in microseconds.
static bool parse_duration(const char *text, uint64_t *ns) {
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (end == text || errno)
        return false;
    uint64_t unit = 0;
    if (!*end || !strcmp(end, "us"))
        unit = 1000;
    else if (!strcmp(end, "ns"))
        unit = 1;
    else if (!strcmp(end, "ms"))
        unit = 1000000;
    else if (!strcmp(end, "s"))
        unit = 1000000000;
    *ns = n * unit;
    return unit != 0;
}

static bool parse_when(char *text, struct sim_rule *r) {
    r->first = 1;
    r->last = UINT64_MAX;
    if (!strcmp(text, "*"))
        return true;
    if (!strncmp(text, "*/", 2)) {
        r->every = strtoull(text + 2, NULL, 10);
        return r->every > 0;
    }
    char *end;
    r->first = strtoull(text, &end, 10);
    r->last = r->first;
    if (end[0] == '-')
        r->last = end[1] ? strtoull(end + 1, &end, 10) : UINT64_MAX;
    if (end[0] == '-' && !end[1])
        end++;
    return !*end && r->first > 0 && r->last >= r->first;
}

static bool parse_what(char *text, struct sim_rule *r) {
    int64_t code;
    if (!strcmp(text, "kill"))
        r->action = SIM_ACT_KILL;
    else if (!strcmp(text, "stop"))
        r->action = SIM_ACT_STOP;
    else if (!strncmp(text, "delay=", 6)) {
        r->action = SIM_ACT_DELAY;
        return parse_duration(text + 6, &r->delay_ns);
    } else if (parse_number(text, &code)) {
        r->action = SIM_ACT_FAIL;
        r->code = (int32_t)code;
    } else
        return false;
    return true;
}

int sim_rule_parse(const char *text, struct sim_rule *out) {
    char copy[256];
    struct sim_rule r;
    memset(&r, 0, sizeof r);
    if (strlen(text) >= sizeof copy)
        return -1;
    strcpy(copy, text);
    char *save = NULL;
    char *name = strtok_r(copy, ":", &save);
    char *when = strtok_r(NULL, ":", &save);
    char *what = strtok_r(NULL, ":", &save);
    if (!name || !when || !what || strlen(name) >= sizeof r.pattern)
        return -1;
    strcpy(r.pattern, name);
    if (!parse_when(when, &r) || !parse_what(what, &r))
        return -1;
    for (char *opt; (opt = strtok_r(NULL, ":", &save));) {
        int64_t pid;
        if (!strcmp(opt, "process"))
            r.per_process = 1;
        else if (!strncmp(opt, "pid=", 4) && parse_number(opt + 4, &pid))
            r.pid = (int32_t)pid;
        else
            return -1;
    }
    memcpy(out, &r, sizeof r);
    return 0;
}

// Makes a UUID that is always equal for device n of a folder, so that tests can contain it.
static void name_device(struct sim_device *d, uint32_t index) {
    snprintf(d->name, sizeof d->name, "Simulated GPU %u", index);
    static const uint8_t uuid[16] = {0x51, 0x3c, 0xda, 0x00, 0x00, 0x00, 0x40, 0x00,
                                     0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    memcpy(d->uuid, uuid, sizeof uuid);
    d->uuid[3] = (uint8_t)(index + 1);
    d->uuid[15] = (uint8_t)(index + 1);
    d->pci_domain = 0;
    d->pci_bus = 0x10 + index * 0x10;
    d->pci_device = 0;
}

// Reads the first device's UUID: 32 digits, with hyphens anywhere. Tests use it for a device that
// another API names as well.
static bool parse_uuid(struct sim_device *d, const char *text) {
    size_t digits = 0;
    for (; *text; text++) {
        unsigned int value;
        if (*text == '-')
            continue;
        if (digits == 2 * sizeof d->uuid || !strchr("0123456789abcdef", *text) ||
            sscanf((const char[]){*text, 0}, "%x", &value) != 1)
            return false;
        d->uuid[digits / 2] =
            (uint8_t)(digits % 2 ? (d->uuid[digits / 2] | value) : (uint8_t)(value << 4));
        digits++;
    }
    return digits == 2 * sizeof d->uuid;
}

static bool parse_devices(struct sim_state *s, const char *text) {
    if (!strcmp(text, "none"))
        return true;
    char copy[512];
    if (strlen(text) >= sizeof copy)
        return false;
    strcpy(copy, text);
    char *save = NULL;
    for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
        if (s->device_count == SIM_MAX_DEVICES)
            return false;
        struct sim_device *d = &s->dev[s->device_count];
        if (!sim_parse_size(t, &d->total) || d->total == 0)
            return false;
        name_device(d, s->device_count++);
    }
    return s->device_count > 0;
}

static bool wrong(const char *name) {
    fprintf(stderr, "simcuda: cannot read %s='%s'\n", name, getenv(name));
    errno = EINVAL;
    return false;
}

// Reads a list of device numbers, each followed by what `each` reads (for MIG instances:
// ":PARENT").
static bool parse_numbers(struct sim_state *s, const char *text,
                          bool (*each)(struct sim_state *, uint32_t, const char *)) {
    char copy[512];
    if (strlen(text) >= sizeof copy)
        return false;
    strcpy(copy, text);
    char *save = NULL;
    for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
        char *end;
        unsigned long n = strtoul(t, &end, 10);
        if (end == t || n >= s->device_count || !each(s, (uint32_t)n, end))
            return false;
    }
    return true;
}

static bool set_absent(struct sim_state *s, uint32_t dev, const char *rest) {
    atomic_store(&s->dev[dev].absent, 1);
    return !*rest;
}

static bool set_hidden(struct sim_state *s, uint32_t dev, const char *rest) {
    s->dev[dev].hidden = 1;
    return !*rest;
}

static bool set_instance(struct sim_state *s, uint32_t dev, const char *rest) {
    char *end;
    unsigned long parent = *rest == ':' ? strtoul(rest + 1, &end, 10) : s->device_count;
    if (parent >= s->device_count || *end || parent == dev)
        return false;
    struct sim_device *d = &s->dev[dev], *of = &s->dev[parent];
    d->instance_of = (uint32_t)parent + 1;
    d->pci_domain = of->pci_domain;
    d->pci_bus = of->pci_bus;
    d->pci_device = of->pci_device;
    snprintf(d->name, sizeof d->name, "Simulated instance %u of GPU %lu", dev, parent);
    return true;
}

static bool parse_lacks(struct sim_config *c, const char *text) {
    static const char *const words[] = {"memory",    "pci",         "name",
                                        "processes", "utilization", "limits"};
    char copy[256];
    if (strlen(text) >= sizeof copy)
        return false;
    strcpy(copy, text);
    char *save = NULL;
    for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
        size_t i = 0;
        while (i < sizeof words / sizeof *words && strcmp(words[i], t) != 0)
            i++;
        if (i == sizeof words / sizeof *words)
            return false;
        c->nvml_lacks |= 1 << i;
    }
    return true;
}

// Reads which devices exist, which of them NVML shows, and which functions NVML lacks.
static bool load_presence(struct sim_state *s) {
    static const struct {
        const char *name;
        bool (*each)(struct sim_state *, uint32_t, const char *);
    } lists[] = {{"SIMCUDA_ABSENT", set_absent},
                 {"SIMCUDA_NVML_HIDES", set_hidden},
                 {"SIMCUDA_MIG", set_instance}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *v = getenv(lists[i].name);
        if (v && *v && !parse_numbers(s, v, lists[i].each))
            return wrong(lists[i].name);
    }
    const char *lacks = getenv("SIMCUDA_NVML_LACKS");
    return !lacks || !*lacks || parse_lacks(&s->config, lacks) || wrong("SIMCUDA_NVML_LACKS");
}

static bool parse_rules(struct sim_state *s, const char *text) {
    char copy[4096];
    if (strlen(text) >= sizeof copy)
        return false;
    strcpy(copy, text);
    char *save = NULL;
    uint32_t n = 0;
    for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save))
        if (n == SIM_MAX_RULES || sim_rule_parse(t, &s->rule[n++]) != 0)
            return false;
    atomic_store(&s->rule_count, n);
    return true;
}

static bool size_var(const char *name, uint64_t *out, uint64_t otherwise) {
    const char *v = getenv(name);
    *out = otherwise;
    return !v || !*v || sim_parse_size(v, out) || wrong(name);
}

static bool number_var(const char *name, int64_t *out, int64_t otherwise) {
    const char *v = getenv(name);
    *out = otherwise;
    return !v || !*v || parse_number(v, out) || wrong(name);
}

static bool duration_var(const char *name, uint64_t *out) {
    const char *v = getenv(name);
    *out = 0;
    return !v || !*v || parse_duration(v, out) || wrong(name);
}

int sim_config_load(struct sim_state *s) {
    struct sim_config *c = &s->config;
    int64_t lost, reverse, reuse, apart, remap, moves;
    if (!size_var("SIMCUDA_CONTEXT_BYTES", &c->context_bytes, 64u << 20) ||
        !size_var("SIMCUDA_POOL_GRANULE", &c->pool_granule, 0) ||
        !number_var("SIMCUDA_POOL_REMAP", &remap, 0) ||
        !size_var("SIMCUDA_PITCH", &c->pitch, 512) || (!c->pitch && !wrong("SIMCUDA_PITCH")) ||
        !size_var("SIMCUDA_RESERVED", &c->reserved_bytes, 0) ||
        !duration_var("SIMCUDA_STREAM_DELAY_US", &c->stream_delay_ns) ||
        !duration_var("SIMCUDA_ALLOC_DELAY_US", &c->alloc_delay_ns) ||
        !number_var("SIMCUDA_RELEASE_DELAY_MS", &c->release_delay_ms, 0) ||
        !number_var("SIMCUDA_LOST_CODE", &lost, 999) ||
        !number_var("SIMCUDA_NVML_REVERSE", &reverse, 0) ||
        !number_var("SIMCUDA_MANAGED_MOVES", &moves, 0) ||
        !number_var("SIMCUDA_REUSE_HANDLES", &reuse, 0) ||
        !number_var("SIMCUDA_HANDLES_APART", &apart, 0))
        return -1;
    c->lost_code = (int32_t)lost;
    c->nvml_order_reverse = reverse != 0;
    c->reuse_handles = reuse != 0;
    c->handles_apart = apart != 0;
    c->pool_remap = remap != 0;
    c->managed_moves = moves != 0;
    const char *devices = getenv("SIMCUDA_DEVICES"), *fail = getenv("SIMCUDA_FAIL");
    if (!parse_devices(s, devices && *devices ? devices : "8G,8G")) {
        if (devices)
            wrong("SIMCUDA_DEVICES");
        return -1;
    }
    const char *uuid = getenv("SIMCUDA_UUID");
    if (uuid && *uuid && !parse_uuid(&s->dev[0], uuid)) {
        wrong("SIMCUDA_UUID");
        return -1;
    }
    if (!load_presence(s))
        return -1;
    if (fail && *fail && !parse_rules(s, fail)) {
        wrong("SIMCUDA_FAIL");
        return -1;
    }
    return 0;
}
