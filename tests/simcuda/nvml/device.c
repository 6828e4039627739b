// SPDX-License-Identifier: Apache-2.0
//
// NVML's answers about one device and the processes on it.

#include "nvml.h"

#include <stdio.h>
#include <string.h>

void nvml_uuid(const struct sim_state *s, int phys, char out[NVML_UUID_TEXT]) {
    const uint8_t *u = s->dev[phys].uuid;
    int n = snprintf(out, NVML_UUID_TEXT, s->dev[phys].instance_of ? "MIG-" : "GPU-");
    for (int i = 0; i < 16; i++)
        n += snprintf(out + n, NVML_UUID_TEXT - (size_t)n, "%s%02x",
                      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *out, unsigned length) {
    DEVICE(d, s, phys);
    LACKS(s, SIM_LACKS_NAME);
    return nvml_text(out, length, s->dev[phys].name);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *out, unsigned length) {
    char text[NVML_UUID_TEXT];
    DEVICE(d, s, phys);
    nvml_uuid(s, phys, text);
    return nvml_text(out, length, text);
}

// Version 2 ends before bus_id, version 1 before subsystem: each version writes only its own
// fields.
struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id;
    unsigned subsystem;
    char bus_id[32];
};

static struct pci_info pci(const struct sim_state *s, int phys) {
    const struct sim_device *g = &s->dev[phys];
    struct pci_info p;
    memset(&p, 0, sizeof p);
    p.domain = g->pci_domain;
    p.bus = g->pci_bus;
    p.device = g->pci_device;
    p.pci_device_id = 0x220610deu;
    p.subsystem = 0x146710deu;
    snprintf(p.bus_id_legacy, sizeof p.bus_id_legacy, "%04X:%02X:%02X.0", p.domain & 0xffff,
             p.bus & 0xff, p.device & 0x1f);
    snprintf(p.bus_id, sizeof p.bus_id, "%08X:%02X:%02X.0", p.domain, p.bus, p.device);
    return p;
}

static nvmlReturn_t pci_info(nvmlDevice_t d, void *out, size_t size) {
    DEVICE(d, s, phys);
    LACKS(s, SIM_LACKS_PCI);
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct pci_info p = pci(s, phys);
    memcpy(out, &p, size);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t d, struct pci_info *out) {
    return pci_info(d, out, offsetof(struct pci_info, subsystem));
}
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t d, struct pci_info *out) {
    return pci_info(d, out, offsetof(struct pci_info, bus_id));
}
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, struct pci_info *out) {
    return pci_info(d, out, sizeof *out);
}

static uint64_t used_now(struct sim_state *s, int phys) {
    sim_reap(s);
    sim_lock(s);
    uint64_t used = s->dev[phys].used;
    sim_unlock(s);
    return used;
}

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

enum { MEMORY_V2 = (int)sizeof(struct memory_v2) | 2 << 24 };

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, struct memory_v2 *m) {
    DEVICE(d, s, phys);
    LACKS(s, SIM_LACKS_MEMORY);
    if (!m)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (m->version != MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    uint64_t capacity = sim_capacity(s, phys);
    m->total = s->dev[phys].total;
    m->reserved = m->total - capacity;
    m->used = used_now(s, phys);
    m->free = m->used < capacity ? capacity - m->used : 0;
    return NVML_SUCCESS;
}

// The first version counts the driver's reserve as used. Like the real library it calls the second
// version by name, which a preloaded library may replace.
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, struct memory *m) {
    struct memory_v2 now = {.version = MEMORY_V2};
    if (!m)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t rc = nvmlDeviceGetMemoryInfo_v2(d, &now);
    if (rc)
        return rc;
    *m = (struct memory){now.total, now.free, now.total - now.free};
    return NVML_SUCCESS;
}

struct process_v1 {
    unsigned pid;
    unsigned long long used;
};

struct process_v2 {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

// Lists all processes with memory on the device. A process that loaded the library twice, or
// executed another program, has two records and is listed once.
static unsigned collect(struct sim_state *s, int phys, struct process_v2 *out, unsigned size) {
    unsigned n = 0;
    sim_reap(s);
    uint32_t high = atomic_load(&s->proc_high);
    sim_lock(s);
    for (uint32_t i = 0; i < high; i++) {
        struct sim_proc *p = &s->proc[i];
        struct sim_usage *u = &p->dev[phys];
        uint64_t used = atomic_load(&u->user) + atomic_load(&u->extra);
        if (atomic_load(&p->state) != SIM_PROC_LIVE || (!used && !atomic_load(&u->contexts)))
            continue;
        unsigned k = 0, pid = (unsigned)sim_proc_pid(p);
        while (k < n && k < size && out[k].pid != pid)
            k++;
        if (k < n && k < size) {
            out[k].used += used;
            continue;
        }
        if (n < size)
            out[n] = (struct process_v2){pid, used, ~0u, ~0u};
        n++;
    }
    sim_unlock(s);
    return n;
}

// Lists the processes if the list is of the configured kind; the lists of other kinds are empty.
static unsigned collect_kind(struct sim_state *s, int phys, unsigned kind, struct process_v2 *out) {
    bool figures = s->config.nvml_list != SIM_NVML_NO_FIGURES;
    if (kind != (figures ? (unsigned)s->config.nvml_list : SIM_NVML_COMPUTE))
        return 0;
    unsigned n = collect(s, phys, out, SIM_MAX_PROCS);
    for (unsigned i = 0; !figures && i < n && i < SIM_MAX_PROCS; i++)
        out[i].used = ~0ull; // NVML_VALUE_NOT_AVAILABLE
    return n;
}

static nvmlReturn_t running(nvmlDevice_t d, unsigned kind, unsigned *count, void *out,
                            size_t size) {
    struct process_v2 list[SIM_MAX_PROCS];
    DEVICE(d, s, phys);
    LACKS(s, SIM_LACKS_PROCESSES);
    if (!count || (*count && !out))
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned room = *count, n = collect_kind(s, phys, kind, list);
    *count = n;
    if (n > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < n; i++)
        if (size == sizeof(struct process_v1))
            ((struct process_v1 *)out)[i] = (struct process_v1){list[i].pid, list[i].used};
        else
            ((struct process_v2 *)out)[i] = list[i];
    return NVML_SUCCESS;
}

#define RUNNING(kind, name)                                                                        \
    EXPORT nvmlReturn_t name(nvmlDevice_t d, unsigned *n, void *out) {                             \
        return running(d, kind, n, out, sizeof(struct process_v1));                                \
    }                                                                                              \
    EXPORT nvmlReturn_t name##_v2(nvmlDevice_t d, unsigned *n, void *out) {                        \
        return running(d, kind, n, out, sizeof(struct process_v2));                                \
    }                                                                                              \
    EXPORT nvmlReturn_t name##_v3(nvmlDevice_t d, unsigned *n, void *out) {                        \
        return running(d, kind, n, out, sizeof(struct process_v2));                                \
    }
RUNNING(SIM_NVML_COMPUTE, nvmlDeviceGetComputeRunningProcesses)
RUNNING(SIM_NVML_GRAPHICS, nvmlDeviceGetGraphicsRunningProcesses)
RUNNING(SIM_NVML_MPS, nvmlDeviceGetMPSComputeRunningProcesses)

struct detail {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected_used;
};

struct details {
    unsigned version, mode, count;
    struct detail *list;
};

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t d, struct details *all) {
    enum { VERSION = (int)sizeof *all | 1 << 24 };
    struct process_v2 list[SIM_MAX_PROCS];
    DEVICE(d, s, phys);
    if (!all || (all->count && !all->list))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (all->version != VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned room = all->count;
    unsigned n = collect_kind(s, phys, all->mode, list); // modes are the kinds of processes
    all->count = n;
    if (n > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < n; i++)
        all->list[i] = (struct detail){list[i].pid, list[i].used, ~0u, ~0u, 0};
    return NVML_SUCCESS;
}

struct sample {
    unsigned pid;
    unsigned long long at_us;
    unsigned multiprocessors, memory, encoder, decoder;
};

// Collects the samples after a time, the last one of each process that was busy. Like a real driver
// it keeps samples of processes that rest by now, and knows none on a device that is divided into
// instances, or of an instance.
static nvmlReturn_t collect_samples(struct sim_state *s, int phys, uint64_t since_us,
                                    struct sample *out, unsigned *count) {
    LACKS(s, SIM_LACKS_UTILIZATION);
    if (s->dev[phys].instance_of || sim_divided(s, phys))
        return NVML_ERROR_NOT_SUPPORTED;
    uint64_t now_us = sim_sampled_us();
    unsigned n = 0;
    sim_reap(s);
    uint32_t high = atomic_load(&s->proc_high);
    sim_lock(s);
    for (uint32_t i = 0; i < high; i++) {
        struct sim_proc *p = &s->proc[i];
        struct sim_usage *u = &p->dev[phys];
        unsigned busy = atomic_load(&u->busy);
        uint64_t at_us = busy ? now_us : atomic_load(&u->was_busy_at_us);
        if (atomic_load(&p->state) != SIM_PROC_LIVE || at_us <= since_us)
            continue;
        busy = busy ? busy : atomic_load(&u->was_busy);
        out[n++] = (struct sample){(unsigned)sim_proc_pid(p), at_us, busy, 0, 0, 0};
    }
    sim_unlock(s);
    *count = n;
    return n ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

// If samples is NULL, the call returns the number of samples, with the error for too little room.
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t d, struct sample *samples,
                                                    unsigned *count, unsigned long long since) {
    struct sample list[SIM_MAX_PROCS];
    DEVICE(d, s, phys);
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned room = samples ? *count : 0;
    nvmlReturn_t rc = collect_samples(s, phys, since, list, count);
    if (rc)
        return rc;
    if (!samples || *count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(samples, list, *count * sizeof *samples);
    return NVML_SUCCESS;
}

struct busy {
    unsigned long long at_us;
    unsigned pid;
    unsigned multiprocessors, memory, encoder, decoder, jpeg, flow;
};

struct busy_list {
    unsigned version, count;
    unsigned long long since_us;
    struct busy *list;
};

// Does the work of nvmlDeviceGetProcessUtilization for the newer structure.
EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t d, struct busy_list *all) {
    enum { VERSION = (int)sizeof *all | 1 << 24 };
    struct sample list[SIM_MAX_PROCS];
    DEVICE(d, s, phys);
    if (!all)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (all->version != VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned room = all->list ? all->count : 0;
    nvmlReturn_t rc = collect_samples(s, phys, all->since_us, list, &all->count);
    if (rc)
        return rc;
    if (all->count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < all->count; i++)
        all->list[i] = (struct busy){
            .at_us = list[i].at_us, .pid = list[i].pid, .multiprocessors = list[i].multiprocessors};
    return NVML_SUCCESS;
}
