// SPDX-License-Identifier: Apache-2.0
#include "nvml/nvml.h"

#include "core/budget.h"
#include "core/device.h"
#include "core/link.h"
#include "core/log.h"

void *_Atomic ga_nvml_functions[GA_NVML_ROWS];

// "GPU-" or "MIG-" and 32 digits with hyphens between.
static bool parse_uuid(const char *text, uint8_t uuid[GA_UUID_SIZE]) {
    size_t digits = 0;
    while (*text && *text != '-')
        text++;
    for (; *text; text++) {
        int value = ga_os_unhex(*text);
        if (*text == '-')
            continue;
        if (value < 0 || digits == 2 * (size_t)GA_UUID_SIZE)
            return false;
        uuid[digits / 2] = (uint8_t)(digits % 2 ? uuid[digits / 2] | value : value << 4);
        digits++;
    }
    return digits == 2 * (size_t)GA_UUID_SIZE;
}

// What is asked about. False: the library's own answer stands.
struct subject {
    struct ga_root *root;
    struct ga_nvml_known of;
    struct ga_budget budget;
};

#define MEMORY_V2 (sizeof(struct ga_nvml_memory_v2) | 2u << 24)

// Asks the library which device a handle is, and how much of its memory the driver keeps.
static bool ask_of(ga_nvml_device device, struct ga_nvml_known *known) {
    char text[96] = "";
    struct ga_nvml_memory_v2 m = {.version = MEMORY_V2};
    *known = (struct ga_nvml_known){.device = device, .at_ms = ga_os_coarse_ms()};
    if (GA_NVML_REAL(nvmlDeviceGetMemoryInfo_v2)) {
        if (GA_NVML_REAL(nvmlDeviceGetMemoryInfo_v2)(device, &m) == GA_NVML_SUCCESS)
            known->reserved = m.reserved;
        else
            known->at_ms = 0; // the next answer asks again
    }
    return GA_NVML_REAL(nvmlDeviceGetUUID) &&
           GA_NVML_REAL(nvmlDeviceGetUUID)(device, text, sizeof text) == GA_NVML_SUCCESS &&
           parse_uuid(text, known->uuid);
}

// The entry of a handle, or else the oldest one, to be replaced. The caller holds the lock.
static struct ga_nvml_known *place_of(struct ga_nvml_state *state, ga_nvml_device device) {
    struct ga_nvml_known *place = &state->known[0];
    for (size_t i = 0; i < GA_DEVICES; i++) {
        struct ga_nvml_known *k = &state->known[i];
        if (k->device == device)
            return k;
        if (k->at_ms < place->at_ms)
            place = k;
    }
    return place;
}

// How long an entry is used. After nvmlShutdown and nvmlInit a handle may be another device's.
#define KNOWN_MS 1000

static bool known_of(struct ga_root *root, ga_nvml_device device, struct ga_nvml_known *known) {
    struct ga_nvml_state *state = ga_nvml(root);
    ga_self_lock(&state->lock);
    *known = *place_of(state, device);
    ga_self_unlock(&state->lock);
    if (device && known->device == device && ga_os_coarse_ms() - known->at_ms < KNOWN_MS)
        return true;
    if (!ask_of(device, known))
        return false;
    ga_self_lock(&state->lock);
    *place_of(state, device) = *known;
    ga_self_unlock(&state->lock);
    return true;
}

// total: of the memory, as NVML has it; UINT64_MAX: it does not matter. What CUDA calls the
// device's memory is that, less what the driver keeps.
static bool subject_of(struct subject *s, ga_nvml_device device, uint64_t total) {
    *s = (struct subject){.root = ga_root_get()};
    if (!s->root || !s->root->env.virtualize || !known_of(s->root, device, &s->of))
        return false;
    uint64_t capacity = total > s->of.reserved ? total - s->of.reserved : total;
    return ga_budget_ask(s->root, s->of.uuid, capacity, &s->budget);
}

// Where it has no budget there is nothing to fit the others into: it sees everybody.
static bool limited_subject(struct subject *s, ga_nvml_device device) {
    return subject_of(s, device, UINT64_MAX) && s->budget.limited;
}

ga_nvml_result ga_nvml_memory(GA_FN_nvmlDeviceGetMemoryInfo *real, ga_nvml_device device,
                              struct ga_nvml_memory *memory) {
    struct subject s;
    ga_nvml_result result = real(device, memory);
    if (result != GA_NVML_SUCCESS || !subject_of(&s, device, memory->total))
        return result;
    memory->total = s.budget.total;
    memory->free = s.budget.room;
    memory->used = s.budget.total - s.budget.room;
    return result;
}

// What the driver keeps is no part of a budget.
ga_nvml_result ga_nvml_memory_v2(GA_FN_nvmlDeviceGetMemoryInfo_v2 *real, ga_nvml_device device,
                                 struct ga_nvml_memory_v2 *memory) {
    struct subject s;
    ga_nvml_result result = real(device, memory);
    if (result != GA_NVML_SUCCESS || memory->version != MEMORY_V2 ||
        !subject_of(&s, device, memory->total))
        return result;
    memory->total = s.budget.total;
    memory->reserved = 0;
    memory->free = s.budget.room;
    memory->used = s.budget.total - s.budget.room;
    return result;
}

static uint64_t own_bytes(const struct subject *s) {
    int device = ga_device_find(s->root, s->of.uuid);
    return device < 0 ? 0 : ga_link_used(s->root, (uint32_t)device);
}

// Which other processes belong to the job of this one

static const char variable[] = "GPUARB_JOB=";

// Follows an environment byte by byte, looking for one whole variable.
struct search {
    const char *token;
    size_t at; // so much of it has matched
    bool lost; // this variable is another one
    bool found;
};

static char expected(const struct search *s) {
    size_t n = sizeof variable - 1;
    return s->at < n ? variable[s->at] : s->token[s->at - n]; // NUL at the end
}

static void follow(struct search *s, char c) {
    if (!s->lost && c == expected(s)) {
        s->found |= c == '\0' && s->at >= sizeof variable - 1;
        s->at++;
    } else {
        s->lost = true;
    }
    if (c == '\0') {
        s->at = 0;
        s->lost = false;
    }
}

// Reports whether a process was started with this process's GPUARB_JOB. A process whose environment
// may not be read is not in the job, because all processes of a job belong to one user.
static bool is_of_job(const struct ga_env *env, int pid) {
    char path[64];
    char text[1024];
    char token[2 * sizeof env->hello.job + 1] = "";
    struct search s = {.token = token};
    if (!env->in_job)
        return false;
    for (size_t i = 0; i < sizeof env->hello.job; i++)
        ga_os_hex(&token[2 * i], env->hello.job[i], 2);
    ga_log_format(path, sizeof path, "/proc/%u/environ", (uint64_t)pid);
    int fd = ga_os_open_read(path);
    if (fd < 0)
        return false;
    for (long n; !s.found && (n = ga_os_read(fd, text, sizeof text)) > 0;)
        for (long i = 0; i < n && !s.found; i++)
            follow(&s, text[i]);
    ga_os_close(fd);
    return s.found;
}

static bool is_shown(const struct subject *s, unsigned int pid) {
    return pid == (unsigned int)ga_os_pid() || is_of_job(&s->root->env, (int)pid);
}

// A list of processes on its way to the program.
struct list {
    uint8_t *records;
    size_t size;        // of a record
    unsigned int count; // of records
};

static struct ga_nvml_process_v1 *record(const struct list *l, unsigned int i) {
    return (struct ga_nvml_process_v1 *)(void *)(l->records + i * l->size);
}

// Keeps who shares the budget: this process, with what it holds by the ledger, and the rest of its
// job, with no more than what is left of the budget's use.
static void keep_sharers(struct list *l, const struct subject *s) {
    unsigned int own = (unsigned int)ga_os_pid();
    uint64_t mine = own_bytes(s);
    uint64_t rest = s->budget.used > mine ? s->budget.used - mine : 0;
    unsigned int kept = 0;
    for (unsigned int i = 0; i < l->count; i++) {
        struct ga_nvml_process_v1 *r = record(l, i);
        bool is_own = r->pid == own;
        if (!is_shown(s, r->pid))
            continue;
        if (is_own)
            r->used = mine;
        else if (r->used > rest)
            r->used = rest;
        rest -= is_own ? 0 : r->used;
        ga_os_copy(record(l, kept++), r, l->size);
    }
    l->count = kept;
}

#define RECORDS 1024      // more processes than a device usually has
#define RECORDS_MAX 65536 // and more than it can have

// What NVML is asked for a list: one of the two functions.
struct question {
    GA_FN_nvmlDeviceGetComputeRunningProcesses *processes;
    GA_FN_nvmlDeviceGetRunningProcessDetailList *details;
    bool detailed;
    ga_nvml_device device;
    struct ga_nvml_details form;
};

static bool ask(const struct question *q, struct list *l) {
    if (!q->detailed)
        return q->processes(q->device, &l->count, l->records) == GA_NVML_SUCCESS;
    struct ga_nvml_details d = q->form;
    d.count = l->count;
    d.list = (struct ga_nvml_detail *)(void *)l->records;
    if (q->details(q->device, &d) != GA_NVML_SUCCESS)
        return false;
    l->count = d.count;
    return true;
}

// Hands the list on in the library's manner: too little room is told with how much there must be.
static ga_nvml_result hand_on(const struct list *l, unsigned int *count, void *to) {
    unsigned int room = *count;
    *count = l->count;
    if (l->count > room)
        return GA_NVML_INSUFFICIENT_SIZE;
    ga_os_copy(to, l->records, l->count * l->size);
    return GA_NVML_SUCCESS;
}

// Tells the program of those that share the budget, out of a list with room for everybody. False:
// the library's own answer stands.
static bool tell_sharers(const struct subject *s, const struct question *q, size_t size,
                         unsigned int *count, void *to, ga_nvml_result *result) {
    for (unsigned int room = RECORDS; room <= RECORDS_MAX; room *= 8) {
        struct list l = {.records = ga_os_map(room * size), .size = size, .count = room};
        if (!l.records)
            return false;
        bool asked = ask(q, &l);
        if (asked) {
            keep_sharers(&l, s);
            *result = hand_on(&l, count, to);
        }
        ga_os_unmap(l.records, room * size);
        if (asked)
            return true;
    }
    return false;
}

ga_nvml_result ga_nvml_processes(GA_FN_nvmlDeviceGetComputeRunningProcesses *real, size_t size,
                                 ga_nvml_device device, unsigned int *count, void *to) {
    struct subject s;
    struct question q = {.processes = real, .device = device};
    ga_nvml_result result;
    return count && (*count == 0 || to) && limited_subject(&s, device) &&
                   tell_sharers(&s, &q, size, count, to, &result)
               ? result
               : real(device, count, to);
}

#define DETAILS_V1 (sizeof(struct ga_nvml_details) | 1u << 24)

ga_nvml_result ga_nvml_process_details(GA_FN_nvmlDeviceGetRunningProcessDetailList *real,
                                       ga_nvml_device device, struct ga_nvml_details *details) {
    struct subject s;
    struct question q = {.details = real, .detailed = true, .device = device};
    ga_nvml_result result;
    if (!details || details->version != DETAILS_V1 || (details->count && !details->list) ||
        !limited_subject(&s, device))
        return real(device, details);
    q.form = *details;
    return tell_sharers(&s, &q, sizeof *details->list, &details->count, details->list, &result)
               ? result
               : real(device, details);
}

// Samples of those alone that the lists of processes show. There is room for everybody's, and where
// none is left the library says so by an error.
ga_nvml_result ga_nvml_process_utilization(GA_FN_nvmlDeviceGetProcessUtilization *real,
                                           ga_nvml_device device, struct ga_nvml_sample *samples,
                                           unsigned int *count, unsigned long long since) {
    struct subject s;
    unsigned int kept = 0;
    ga_nvml_result result = real(device, samples, count, since);
    if (result != GA_NVML_SUCCESS || !samples || !count || !limited_subject(&s, device))
        return result;
    for (unsigned int i = 0; i < *count; i++)
        if (is_shown(&s, samples[i].pid))
            samples[kept++] = samples[i];
    *count = kept;
    return kept ? GA_NVML_SUCCESS : GA_NVML_NOT_FOUND;
}

ga_nvml_result ga_nvml_processes_utilization(GA_FN_nvmlDeviceGetProcessesUtilizationInfo *real,
                                             ga_nvml_device device,
                                             struct ga_nvml_busy_list *busy) {
    struct subject s;
    unsigned int kept = 0;
    ga_nvml_result result = real(device, busy);
    if (result != GA_NVML_SUCCESS || !busy->list || !limited_subject(&s, device))
        return result;
    for (unsigned int i = 0; i < busy->count; i++)
        if (is_shown(&s, busy->list[i].pid))
            busy->list[kept++] = busy->list[i];
    busy->count = kept;
    return kept ? GA_NVML_SUCCESS : GA_NVML_NOT_FOUND;
}
