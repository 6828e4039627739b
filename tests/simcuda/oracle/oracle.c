// SPDX-License-Identifier: Apache-2.0
//
// simcuda: prints what each process really holds, and injects faults while programs run.

#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: simcuda COMMAND\n"
    "  init                  create the state from SIMCUDA_* if there is none\n"
    "  held                  PID START DEVICE BYTES ALLOCS STREAMS CONTEXTS, a line per process "
    "and device\n"
    "  host [PID]            bytes of host memory that are page-locked, of all or of one process\n"
    "  total [DEV]           bytes of user allocations on a device, or on all\n"
    "  used [DEV]            the same with contexts, rounding and what pools keep\n"
    "  peak DEV [PID]        the most user bytes since the last reset, of all or of one process\n"
    "  reset-peak            begin the peaks anew\n"
    "  devices               INDEX UUID PCI TOTAL CAPACITY STATE NAME\n"
    "  lose DEV, restore DEV a device falls off the bus, and comes back\n"
    "  arrive DEV, leave DEV a device that was absent is there, or is not: for CUDA, and for an "
    "NVML\n"
    "                        that is initialised again\n"
    "  busy PID DEV PERCENT  how much of a device's processors a process uses, as NVML reports it\n"
    "  asked DEV             how many calls of NVML's named a device\n"
    "  lacked DEV            how many requests found too little free memory on a device\n"
    "  hang DEV, answer DEV  NVML does not answer for a device, or (DEV is init) at all, and does\n"
    "  release [PID]         give back now what dead processes hold (SIMCUDA_RELEASE_DELAY_MS)\n"
    "  fail RULE             add a fault: FUNCTION:WHEN:WHAT[:process][:pid=N]\n"
    "  faults                the rules, how many calls each saw and how many it hit\n"
    "  clear                 remove all rules\n"
    "  set KEY VALUE         alloc-delay, nvml-list, release-delay-ms\n";

static int fail(const char *what) {
    fprintf(stderr, "simcuda: %s\n", what);
    return 2;
}

// Parses a device number. −1: no such device.
static int device_arg(const struct sim_state *s, const char *text) {
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    return *text && !*end && n < s->device_count ? (int)n : -1;
}

static int cmd_held(struct sim_state *s) {
    sim_reap(s);
    uint32_t high = atomic_load(&s->proc_high);
    sim_lock(s);
    for (uint32_t i = 0; i < high; i++) {
        struct sim_proc *p = &s->proc[i];
        if (atomic_load(&p->state) != SIM_PROC_LIVE)
            continue;
        for (uint32_t d = 0; d < s->device_count; d++) {
            struct sim_usage *u = &p->dev[d];
            if (!atomic_load(&u->user) && !atomic_load(&u->extra) && !atomic_load(&u->allocs) &&
                !atomic_load(&u->streams) && !atomic_load(&u->contexts))
                continue;
            printf("%d %" PRIu64 " %u %" PRIu64 " %u %u %u\n", sim_proc_pid(p), p->start, d,
                   atomic_load(&u->user), atomic_load(&u->allocs), atomic_load(&u->streams),
                   atomic_load(&u->contexts));
        }
    }
    sim_unlock(s);
    return 0;
}

static int cmd_host(struct sim_state *s, const char *pid) {
    uint64_t sum = 0;
    sim_reap(s);
    sim_lock(s);
    for (uint32_t i = 0; i < SIM_MAX_PROCS; i++) {
        struct sim_proc *p = &s->proc[i];
        if (atomic_load(&p->state) == SIM_PROC_LIVE && (!pid || sim_proc_pid(p) == atoi(pid)))
            sum += atomic_load(&p->host);
    }
    sim_unlock(s);
    printf("%" PRIu64 "\n", sum);
    return 0;
}

// Adds the records up, because the stored sums are only for speed; both must agree.
static int cmd_sum(struct sim_state *s, const char *dev, bool extra) {
    int only = dev ? device_arg(s, dev) : -1;
    if (dev && only < 0)
        return fail("no such device");
    uint64_t sum = 0, kept = 0;
    sim_reap(s);
    sim_lock(s);
    for (uint32_t d = 0; d < s->device_count; d++) {
        if (dev && (int)d != only)
            continue;
        kept += extra ? s->dev[d].used : s->dev[d].user;
        for (uint32_t i = 0; i < SIM_MAX_PROCS; i++) {
            struct sim_proc *p = &s->proc[i];
            if (atomic_load(&p->state) != SIM_PROC_LIVE)
                continue;
            sum += atomic_load(&p->dev[d].user);
            sum += extra ? atomic_load(&p->dev[d].extra) : 0;
        }
    }
    sim_unlock(s);
    if (kept != sum)
        return fail("the device's sum differs from its processes' records");
    printf("%" PRIu64 "\n", sum);
    return 0;
}

static int cmd_peak(struct sim_state *s, const char *dev, const char *pid) {
    int d = device_arg(s, dev);
    if (d < 0)
        return fail("no such device");
    uint64_t peak = s->dev[d].user_peak;
    if (pid) {
        peak = 0;
        for (uint32_t i = 0; i < SIM_MAX_PROCS; i++)
            if (atomic_load(&s->proc[i].state) == SIM_PROC_LIVE &&
                sim_proc_pid(&s->proc[i]) == atoi(pid) &&
                atomic_load(&s->proc[i].dev[d].user_peak) > peak)
                peak = atomic_load(&s->proc[i].dev[d].user_peak);
    }
    printf("%" PRIu64 "\n", peak);
    return 0;
}

static int cmd_reset_peak(struct sim_state *s) {
    sim_reap(s);
    sim_lock(s);
    for (uint32_t d = 0; d < s->device_count; d++) {
        s->dev[d].user_peak = s->dev[d].user;
        for (uint32_t i = 0; i < SIM_MAX_PROCS; i++) {
            struct sim_usage *u = &s->proc[i].dev[d];
            if (atomic_load(&s->proc[i].state) == SIM_PROC_LIVE)
                atomic_store(&u->user_peak, atomic_load(&u->user));
        }
    }
    sim_unlock(s);
    return 0;
}

static int cmd_devices(struct sim_state *s) {
    for (uint32_t d = 0; d < s->device_count; d++) {
        const struct sim_device *g = &s->dev[d];
        printf("%u GPU-", d);
        for (int i = 0; i < 16; i++)
            printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", g->uuid[i]);
        printf(" %04x:%02x:%02x.0 %" PRIu64 " %" PRIu64 " %s %s\n", g->pci_domain, g->pci_bus,
               g->pci_device, g->total, sim_capacity(s, (int)d),
               atomic_load(&g->lost) ? "lost" : "ok", g->name);
    }
    return 0;
}

// Sets how busy a process keeps a device, from now on.
static int cmd_busy(struct sim_state *s, const char *pid, const char *dev, const char *percent) {
    int d = device_arg(s, dev);
    char *end;
    unsigned long busy = strtoul(percent, &end, 10);
    bool found = false;
    if (d < 0)
        return fail("no such device");
    if (!*percent || *end || busy > 100)
        return fail("not a percentage");
    sim_lock(s);
    for (uint32_t i = 0; i < SIM_MAX_PROCS; i++) {
        struct sim_proc *p = &s->proc[i];
        if (atomic_load(&p->state) == SIM_PROC_LIVE && sim_proc_pid(p) == atoi(pid)) {
            struct sim_usage *u = &p->dev[d];
            uint32_t was = atomic_exchange(&u->busy, (uint32_t)busy);
            if (was && !busy) {
                atomic_store(&u->was_busy, was);
                atomic_store(&u->was_busy_at_us, sim_sampled_us());
            }
            found = true;
        }
    }
    sim_unlock(s);
    return found ? 0 : fail("no such process");
}

static int cmd_lost(struct sim_state *s, const char *dev, bool lost) {
    int d = device_arg(s, dev);
    if (d < 0)
        return fail("no such device");
    if (lost)
        sim_lose(s, d);
    else
        atomic_store(&s->dev[d].lost, 0);
    return 0;
}

static int cmd_present(struct sim_state *s, const char *dev, bool present) {
    int d = device_arg(s, dev);
    if (d < 0)
        return fail("no such device");
    atomic_store(&s->dev[d].absent, !present);
    return 0;
}

static int cmd_asked(struct sim_state *s, const char *dev) {
    int d = device_arg(s, dev);
    if (d < 0)
        return fail("no such device");
    printf("%" PRIu64 "\n", atomic_load(&s->dev[d].asked));
    return 0;
}

static int cmd_lacked(struct sim_state *s, const char *dev) {
    int d = device_arg(s, dev);
    if (d < 0)
        return fail("no such device");
    printf("%" PRIu64 "\n", atomic_load(&s->dev[d].lacked));
    return 0;
}

// Makes or removes the file that lets NVML hang, for one device or at the initialisation.
static int cmd_hang(struct sim_state *s, const char *what, bool hang) {
    char path[4096];
    if (strcmp(what, "init") != 0 && device_arg(s, what) < 0)
        return fail("neither init nor a device");
    snprintf(path, sizeof path, "%s/hang-%s", sim_dir(), what);
    if (!hang)
        return unlink(path) == 0 ? 0 : fail("it does not hang");
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return fail("the folder cannot be written");
    close(fd);
    return 0;
}

static int cmd_release(struct sim_state *s, const char *pid) {
    sim_reap(s); // finds dead processes
    for (uint32_t i = 0; i < SIM_MAX_PROCS; i++)
        if (atomic_load(&s->proc[i].dead_since_ns) &&
            (!pid || sim_proc_pid(&s->proc[i]) == atoi(pid)))
            atomic_store(&s->proc[i].release_now, 1);
    sim_reap(s);
    return 0;
}

static int cmd_fail(struct sim_state *s, const char *text) {
    struct sim_rule r;
    if (sim_rule_parse(text, &r) != 0)
        return fail("cannot read the rule");
    sim_lock(s);
    uint32_t n = atomic_load(&s->rule_count);
    if (n < SIM_MAX_RULES) {
        memcpy(&s->rule[n], &r, sizeof r);
        atomic_store(&s->rule_count, n + 1);
    }
    sim_unlock(s);
    return n < SIM_MAX_RULES ? 0 : fail("too many rules");
}

static int cmd_faults(struct sim_state *s) {
    uint32_t n = atomic_load(&s->rule_count);
    for (uint32_t i = 0; i < n; i++) {
        struct sim_rule *r = &s->rule[i];
        static const char *const what[] = {"code", "delay", "kill", "stop"};
        printf("%s %s %d calls=%" PRIu64 " hits=%" PRIu64 "\n", r->pattern, what[r->action],
               r->code, atomic_load(&r->calls), atomic_load(&r->hits));
    }
    return 0;
}

static int cmd_clear(struct sim_state *s) {
    sim_lock(s);
    atomic_store(&s->rule_count, 0);
    atomic_fetch_add(&s->rules_epoch, 1);
    sim_unlock(s);
    return 0;
}

static int cmd_set(struct sim_state *s, const char *key, const char *value) {
    uint64_t n;
    struct sim_config *c = &s->config;
    if (!strcmp(key, "release-delay-ms")) {
        c->release_delay_ms = atoll(value);
        return 0;
    }
    if (!sim_parse_size(value, &n))
        return fail("cannot read the value");
    if (!strcmp(key, "alloc-delay"))
        c->alloc_delay_ns = n * 1000;
    else if (!strcmp(key, "nvml-list") && n <= SIM_NVML_NO_FIGURES)
        c->nvml_list = (int32_t)n;
    else
        return fail("no such setting");
    return 0;
}

static int run(struct sim_state *s, int argc, char **argv) {
    const char *c = argv[1], *a = argc > 2 ? argv[2] : NULL, *b = argc > 3 ? argv[3] : NULL;
    if (!strcmp(c, "init") && !a)
        return 0;
    if (!strcmp(c, "held") && !a)
        return cmd_held(s);
    if (!strcmp(c, "host") && !b)
        return cmd_host(s, a);
    if (!strcmp(c, "total") && !b)
        return cmd_sum(s, a, false);
    if (!strcmp(c, "used") && !b)
        return cmd_sum(s, a, true);
    if (!strcmp(c, "peak") && a)
        return cmd_peak(s, a, b);
    if (!strcmp(c, "reset-peak") && !a)
        return cmd_reset_peak(s);
    if (!strcmp(c, "devices") && !a)
        return cmd_devices(s);
    if (!strcmp(c, "lose") && a && !b)
        return cmd_lost(s, a, true);
    if (!strcmp(c, "restore") && a && !b)
        return cmd_lost(s, a, false);
    if (!strcmp(c, "arrive") && a && !b)
        return cmd_present(s, a, true);
    if (!strcmp(c, "leave") && a && !b)
        return cmd_present(s, a, false);
    if (!strcmp(c, "busy") && a && b && argc > 4)
        return cmd_busy(s, a, b, argv[4]);
    if (!strcmp(c, "asked") && a && !b)
        return cmd_asked(s, a);
    if (!strcmp(c, "lacked") && a && !b)
        return cmd_lacked(s, a);
    if (!strcmp(c, "hang") && a && !b)
        return cmd_hang(s, a, true);
    if (!strcmp(c, "answer") && a && !b)
        return cmd_hang(s, a, false);
    if (!strcmp(c, "release") && !b)
        return cmd_release(s, a);
    if (!strcmp(c, "fail") && a && !b)
        return cmd_fail(s, a);
    if (!strcmp(c, "faults") && !a)
        return cmd_faults(s);
    if (!strcmp(c, "clear") && !a)
        return cmd_clear(s);
    if (!strcmp(c, "set") && a && b)
        return cmd_set(s, a, b);
    fputs(usage, stderr);
    return 2;
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 4 + !strcmp(argv[1], "busy")) {
        fputs(usage, stderr);
        return 2;
    }
    struct sim_state *s = sim_open();
    if (!s) {
        fprintf(stderr, "simcuda: %s: %s\n", sim_dir(), strerror(errno));
        return 1;
    }
    return run(s, argc, argv);
}
