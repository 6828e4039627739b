// SPDX-License-Identifier: Apache-2.0
// Answers a program's questions to NVML with its budget, and with only the processes of its own job
// (nvml.h).
#include "nvml/nvml.h"

#include "core/budget.h"
#include "core/device.h"
#include "core/link.h"
#include "core/log.h"

void *_Atomic ga_nvml_functions[GA_NVML_ROWS];

// Parses a UUID: "GPU-" or "MIG-", and 32 hexadecimal digits with hyphens between. False:
// malformed.
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

// A question of the program: the device and its budget.
struct query {
    struct ga_root *root;
    struct ga_nvml_device_info info;
    struct ga_budget budget;
};

#define MEMORY_V2 (sizeof(struct ga_nvml_memory_v2) | 2u << 24)

// Asks NVML for the UUID of a device handle, and for the bytes that the driver reserves. False:
// NVML does not tell the UUID.
static bool read_device_info(ga_nvml_device device, struct ga_nvml_device_info *known) {
    char text[96] = "";
    struct ga_nvml_memory_v2 m = {.version = MEMORY_V2};
    *known = (struct ga_nvml_device_info){.device = device, .at_ms = ga_os_coarse_ms()};
    if (GA_NVML_REAL(nvmlDeviceGetMemoryInfo_v2)) {
        if (GA_NVML_REAL(nvmlDeviceGetMemoryInfo_v2)(device, &m) == GA_NVML_SUCCESS)
            known->reserved = m.reserved;
        else
            known->at_ms =
                0; // the entry expires at once, so that the next question asks NVML again
    }
    return GA_NVML_REAL(nvmlDeviceGetUUID) &&
           GA_NVML_REAL(nvmlDeviceGetUUID)(device, text, sizeof text) == GA_NVML_SUCCESS &&
           parse_uuid(text, known->uuid);
}

// Returns the slot of a handle, or else the oldest slot, to be replaced. The caller holds the lock.
static struct ga_nvml_device_info *slot_of(struct ga_nvml_state *state, ga_nvml_device device) {
    struct ga_nvml_device_info *slot = &state->devices[0];
    for (size_t i = 0; i < GA_DEVICES; i++) {
        struct ga_nvml_device_info *k = &state->devices[i];
        if (k->device == device)
            return k;
        if (k->at_ms < slot->at_ms)
            slot = k;
    }
    return slot;
}

// Time for which a slot is valid. It must expire, because after nvmlShutdown and nvmlInit a handle
// may stand for another device.
#define DEVICE_INFO_MS 1000

// Returns what is known about a handle, from the table or else from NVML. False: NVML does not know
// the device.
static bool find_device_info(struct ga_root *root, ga_nvml_device device,
                             struct ga_nvml_device_info *known) {
    struct ga_nvml_state *state = ga_nvml(root);
    ga_self_lock(&state->lock);
    *known = *slot_of(state, device);
    ga_self_unlock(&state->lock);
    if (device && known->device == device && ga_os_coarse_ms() - known->at_ms < DEVICE_INFO_MS)
        return true;
    if (!read_device_info(device, known))
        return false;
    ga_self_lock(&state->lock);
    *slot_of(state, device) = *known;
    ga_self_unlock(&state->lock);
    return true;
}

// Reads the budget of a device. total: size of its memory as reported by NVML; UINT64_MAX: not
// needed. CUDA's size of the device is that size without the driver's reserve. False: NVML's own
// answer stands.
static bool query_budget(struct query *s, ga_nvml_device device, uint64_t total) {
    *s = (struct query){.root = ga_root_get()};
    if (!s->root || !s->root->env.virtualize || !find_device_info(s->root, device, &s->info))
        return false;
    uint64_t capacity = total > s->info.reserved ? total - s->info.reserved : total;
    return ga_budget_ask(s->root, s->info.uuid, capacity, &s->budget);
}

// Reads the budget of a device. False also if the device has no budget: then the program sees all
// processes.
static bool query_limited(struct query *s, ga_nvml_device device) {
    return query_budget(s, device, UINT64_MAX) && s->budget.limited;
}

ga_nvml_result ga_nvml_memory(GA_FN_nvmlDeviceGetMemoryInfo *real, ga_nvml_device device,
                              struct ga_nvml_memory *memory) {
    struct query s;
    ga_nvml_result result = real(device, memory);
    if (result != GA_NVML_SUCCESS || !query_budget(&s, device, memory->total))
        return result;
    memory->total = s.budget.total;
    memory->free = s.budget.room;
    memory->used = s.budget.total - s.budget.room;
    return result;
}

// The driver's reserve is not a part of a budget.
ga_nvml_result ga_nvml_memory_v2(GA_FN_nvmlDeviceGetMemoryInfo_v2 *real, ga_nvml_device device,
                                 struct ga_nvml_memory_v2 *memory) {
    struct query s;
    ga_nvml_result result = real(device, memory);
    if (result != GA_NVML_SUCCESS || memory->version != MEMORY_V2 ||
        !query_budget(&s, device, memory->total))
        return result;
    memory->total = s.budget.total;
    memory->reserved = 0;
    memory->free = s.budget.room;
    memory->used = s.budget.total - s.budget.room;
    return result;
}

// Returns the bytes of the device that this process has taken.
static uint64_t own_bytes(const struct query *s) {
    int device = ga_device_find(s->root, s->info.uuid);
    return device < 0 ? 0 : ga_link_used(s->root, (uint32_t)device);
}

// Other processes of this process's job

static const char variable[] = "GPUARB_JOB=";

// Search for one variable in an environment that is read byte by byte.
struct search {
    const char *token;
    size_t at;       // number of bytes that match so far
    bool mismatched; // the current variable is a different one
    bool found;
};

static char expected(const struct search *s) {
    size_t n = sizeof variable - 1;
    return s->at < n ? variable[s->at] : s->token[s->at - n]; // NUL after the last byte
}

static void match_byte(struct search *s, char c) {
    if (!s->mismatched && c == expected(s)) {
        s->found |= c == '\0' && s->at >= sizeof variable - 1;
        s->at++;
    } else {
        s->mismatched = true;
    }
    if (c == '\0') {
        s->at = 0;
        s->mismatched = false;
    }
}

// Reports whether a process was started with this process's GPUARB_JOB. If its environment may not
// be read, the answer is false, because all processes of a job belong to one user.
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
            match_byte(&s, text[i]);
    ga_os_close(fd);
    return s.found;
}

static bool is_in_own_job(const struct query *s, unsigned int pid) {
    return pid == (unsigned int)ga_os_pid() || is_of_job(&s->root->env, (int)pid);
}

// A list of processes, as NVML returned it.
struct list {
    uint8_t *records;
    size_t size;        // bytes of a record
    unsigned int count; // number of records
};

static struct ga_nvml_process_v1 *record(const struct list *l, unsigned int i) {
    return (struct ga_nvml_process_v1 *)(void *)(l->records + i * l->size);
}

// Removes the processes of other jobs from a list. This process gets the bytes that the ledger has
// for it. The other processes of its job get at most what is then left of the budget's use.
static void keep_job_processes(struct list *l, const struct query *s) {
    unsigned int own = (unsigned int)ga_os_pid();
    uint64_t mine = own_bytes(s);
    uint64_t others = s->budget.used > mine ? s->budget.used - mine : 0;
    unsigned int kept = 0;
    for (unsigned int i = 0; i < l->count; i++) {
        struct ga_nvml_process_v1 *r = record(l, i);
        bool is_own = r->pid == own;
        if (!is_in_own_job(s, r->pid))
            continue;
        if (is_own)
            r->used = mine;
        else if (r->used > others)
            r->used = others;
        others -= is_own ? 0 : r->used;
        ga_os_copy(record(l, kept++), r, l->size);
    }
    l->count = kept;
}

#define RECORDS 1024      // first attempt: more processes than a device usually has
#define RECORDS_MAX 65536 // last attempt: more processes than a device can have

// The NVML function that returns a list, and its arguments.
struct list_request {
    GA_FN_nvmlDeviceGetComputeRunningProcesses *processes;
    GA_FN_nvmlDeviceGetRunningProcessDetailList *details;
    bool detailed;
    ga_nvml_device device;
    struct ga_nvml_details form;
};

// Gets the list from NVML. False: an error, for example too little room.
static bool call_nvml(const struct list_request *q, struct list *l) {
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

// Copies the list to the program as NVML does: if the program's array is too small, *count tells
// the required length.
static ga_nvml_result copy_list(const struct list *l, unsigned int *count, void *to) {
    unsigned int room = *count;
    *count = l->count;
    if (l->count > room)
        return GA_NVML_INSUFFICIENT_SIZE;
    ga_os_copy(to, l->records, l->count * l->size);
    return GA_NVML_SUCCESS;
}

// Answers with the processes of the job, from a list that has room for all processes. False: NVML's
// own answer stands.
static bool list_job_processes(const struct query *s, const struct list_request *q, size_t size,
                               unsigned int *count, void *to, ga_nvml_result *result) {
    for (unsigned int room = RECORDS; room <= RECORDS_MAX; room *= 8) {
        struct list l = {.records = ga_os_map(room * size), .size = size, .count = room};
        if (!l.records)
            return false;
        bool answered = call_nvml(q, &l);
        if (answered) {
            keep_job_processes(&l, s);
            *result = copy_list(&l, count, to);
        }
        ga_os_unmap(l.records, room * size);
        if (answered)
            return true;
    }
    return false;
}

ga_nvml_result ga_nvml_processes(GA_FN_nvmlDeviceGetComputeRunningProcesses *real, size_t size,
                                 ga_nvml_device device, unsigned int *count, void *to) {
    struct query s;
    struct list_request q = {.processes = real, .device = device};
    ga_nvml_result result;
    return count && (*count == 0 || to) && query_limited(&s, device) &&
                   list_job_processes(&s, &q, size, count, to, &result)
               ? result
               : real(device, count, to);
}

#define DETAILS_V1 (sizeof(struct ga_nvml_details) | 1u << 24)

ga_nvml_result ga_nvml_process_details(GA_FN_nvmlDeviceGetRunningProcessDetailList *real,
                                       ga_nvml_device device, struct ga_nvml_details *details) {
    struct query s;
    struct list_request q = {.details = real, .detailed = true, .device = device};
    ga_nvml_result result;
    if (!details || details->version != DETAILS_V1 || (details->count && !details->list) ||
        !query_limited(&s, device))
        return real(device, details);
    q.form = *details;
    return list_job_processes(&s, &q, sizeof *details->list, &details->count, details->list,
                              &result)
               ? result
               : real(device, details);
}

// Returns only samples of this process's job. The program's array has room for all samples. If none
// is left, the answer is NVML's error for an empty list.
ga_nvml_result ga_nvml_process_utilization(GA_FN_nvmlDeviceGetProcessUtilization *real,
                                           ga_nvml_device device, struct ga_nvml_sample *samples,
                                           unsigned int *count, unsigned long long since) {
    struct query s;
    unsigned int kept = 0;
    ga_nvml_result result = real(device, samples, count, since);
    if (result != GA_NVML_SUCCESS || !samples || !count || !query_limited(&s, device))
        return result;
    for (unsigned int i = 0; i < *count; i++)
        if (is_in_own_job(&s, samples[i].pid))
            samples[kept++] = samples[i];
    *count = kept;
    return kept ? GA_NVML_SUCCESS : GA_NVML_NOT_FOUND;
}

ga_nvml_result ga_nvml_processes_utilization(GA_FN_nvmlDeviceGetProcessesUtilizationInfo *real,
                                             ga_nvml_device device,
                                             struct ga_nvml_busy_list *busy) {
    struct query s;
    unsigned int kept = 0;
    ga_nvml_result result = real(device, busy);
    if (result != GA_NVML_SUCCESS || !busy->list || !query_limited(&s, device))
        return result;
    for (unsigned int i = 0; i < busy->count; i++)
        if (is_in_own_job(&s, busy->list[i].pid))
            busy->list[kept++] = busy->list[i];
    busy->count = kept;
    return kept ? GA_NVML_SUCCESS : GA_NVML_NOT_FOUND;
}
