// SPDX-License-Identifier: Apache-2.0
//
// Processes that opened the driver. Each has a record in the shared state, and a client file that
// stands for the descriptor of the device. The file is locked with flock, so that a forked child
// with the descriptor also holds it. It is mapped, so that /proc/PID/maps shows whether the program
// that made the record still runs there.
//
// The memory of a record is freed when no process has the descriptor any more, and the process is
// dead or has executed another program. A process that only closed its descriptors keeps its
// memory.

#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CLIENT_BYTES = 4096 };

static void client_path(char *out, size_t size, int32_t pid, uint64_t start, uint64_t serial) {
    snprintf(out, size, "%s/clients/%d-%llu-%llu", sim_dir(), pid, (unsigned long long)start,
             (unsigned long long)serial);
}

static ssize_t read_file(const char *path, char *buf, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, buf, size - 1);
    close(fd);
    if (n >= 0)
        buf[n] = 0;
    return n;
}

// Fields of /proc/PID/stat after the command, which may itself hold blanks and parentheses.
static bool read_stat(pid_t pid, char *state, uint64_t *start) {
    char path[64], buf[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_file(path, buf, sizeof buf) <= 0)
        return false;
    char *p = strrchr(buf, ')');
    if (!p || p[1] != ' ')
        return false;
    *state = p[2];
    p += 2;
    for (int field = 3; field < 22; field++) {
        p = strchr(p, ' ');
        if (!p)
            return false;
        p++;
    }
    *start = strtoull(p, NULL, 10);
    return true;
}

uint64_t sim_proc_start(pid_t pid) {
    char state;
    uint64_t start;
    return read_stat(pid, &state, &start) ? start : 0;
}

bool sim_proc_alive(pid_t pid, uint64_t start) {
    char state;
    uint64_t now;
    return read_stat(pid, &state, &now) && now == start && state != 'Z' && state != 'X';
}

// The PID namespace of the process. It is read once for each process, because a child in a new
// namespace has a different PID.
static uint64_t own_namespace(void) {
    static _Atomic uint64_t known;
    static _Atomic pid_t known_of;
    struct stat st;
    pid_t pid = getpid();
    if (atomic_load(&known_of) == pid)
        return atomic_load(&known);
    uint64_t ns = stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
    atomic_store(&known, ns);
    atomic_store(&known_of, pid);
    return ns;
}

// Returns the PID of a process. A process of another namespace is found by its lock, because
// /proc/locks shows the PID in the reader's namespace. Without a visible lock it keeps its own
// number.
int32_t sim_proc_pid(const struct sim_proc *p) {
    char line[256];
    if (p->pid_namespace == own_namespace())
        return p->pid;
    int32_t found = p->pid;
    FILE *f = fopen("/proc/locks", "re");
    while (f && fgets(line, sizeof line, f)) {
        int pid;
        unsigned long long ino;
        if (sscanf(line, "%*s FLOCK %*s %*s %d %*x:%*x:%llu", &pid, &ino) == 2 &&
            ino == p->client_ino && pid > 0)
            found = pid;
    }
    if (f)
        fclose(f);
    return found;
}

// Reports whether the client file is still mapped by a process. If that cannot be read, it counts
// as mapped.
static bool client_mapped(const struct sim_proc *p) {
    char path[64], line[4600];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)p->pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return errno != ENOENT && errno != ESRCH;
    bool found = false;
    errno = 0;
    while (!found && fgets(line, sizeof line, f)) {
        unsigned long long ino = 0;
        if (sscanf(line, "%*s %*s %*s %*s %llu", &ino) == 1 && ino == p->client_ino)
            found = strstr(line, "/clients/") != NULL;
    }
    if (ferror(f) && errno != ESRCH)
        found = true;
    fclose(f);
    return found;
}

static bool descriptor_held(const struct sim_proc *p) {
    char path[4096];
    client_path(path, sizeof path, p->pid, p->start, p->serial);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT; // not readable: counts as held
    bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return held;
}

static bool is_gone(const struct sim_state *s, struct sim_proc *p) {
    if (descriptor_held(p))
        return false;
    // PIDs of another namespace mean nothing here; there only the descriptor counts.
    if (p->pid_namespace == own_namespace() && sim_proc_alive(p->pid, p->start) && client_mapped(p))
        return false;
    uint64_t since = atomic_load(&p->dead_since_ns);
    if (!since) {
        since = sim_now_ns();
        atomic_store(&p->dead_since_ns, since);
    }
    int64_t delay_ms = s->config.release_delay_ms;
    if (delay_ms == 0 || atomic_load(&p->release_now))
        return true;
    return delay_ms > 0 && sim_now_ns() - since >= (uint64_t)delay_ms * 1000000u;
}

static void free_record(struct sim_state *s, struct sim_proc *p) {
    char path[4096];
    client_path(path, sizeof path, p->pid, p->start, p->serial);
    unlink(path);
    sim_lock(s);
    // The record is freed first, then the sums are changed: if the collector is killed in between,
    // the next holder of the lock adds the records up again.
    atomic_store(&p->state, SIM_PROC_FREE);
    sim_loans_end_locked(s, p);
    for (uint32_t d = 0; d < s->device_count; d++) {
        uint64_t user = atomic_load(&p->dev[d].user);
        s->dev[d].user -= user;
        s->dev[d].used -= user + atomic_load(&p->dev[d].extra);
    }
    sim_unlock(s);
}

void sim_reap(struct sim_state *s) {
    sim_mutex_lock(&s->reap_lock);
    uint32_t high = atomic_load(&s->proc_high);
    for (uint32_t i = 0; i < high; i++) {
        struct sim_proc *p = &s->proc[i];
        if (atomic_load(&p->state) == SIM_PROC_LIVE && is_gone(s, p))
            free_record(s, p);
    }
    sim_mutex_unlock(&s->reap_lock);
}

// Opens, locks and maps the client file. The descriptor stays open, unnamed, until the process
// ends.
static bool open_client(struct sim_proc *want) {
    char path[4096];
    client_path(path, sizeof path, want->pid, want->start, want->serial);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    struct stat st;
    if (fchmod(fd, 0666) != 0 || ftruncate(fd, CLIENT_BYTES) != 0 || fstat(fd, &st) != 0 ||
        flock(fd, LOCK_EX | LOCK_NB) != 0)
        goto fail;
    void *p = mmap(NULL, CLIENT_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        goto fail;
    want->client_ino = st.st_ino;
    return true;
fail:
    close(fd);
    unlink(path);
    return false;
}

static struct sim_proc *claim_record(struct sim_state *s, const struct sim_proc *want) {
    sim_lock(s);
    struct sim_proc *found = NULL;
    for (uint32_t i = 0; i < SIM_MAX_PROCS && !found; i++)
        if (atomic_load(&s->proc[i].state) == SIM_PROC_FREE) {
            found = &s->proc[i];
            if (i >= atomic_load(&s->proc_high))
                atomic_store(&s->proc_high, i + 1);
        }
    if (found) {
        memcpy(found, want, sizeof *found);
        for (uint32_t d = 0; d < s->device_count; d++)
            atomic_store(&found->dev[d].life, atomic_load(&s->dev[d].losses));
        atomic_store(&found->state, SIM_PROC_LIVE);
    }
    sim_unlock(s);
    return found;
}

struct sim_proc *sim_proc_register(struct sim_state *s) {
    struct sim_proc want;
    memset(&want, 0, sizeof want);
    want.pid = getpid();
    want.uid = getuid();
    want.pid_namespace = own_namespace();
    want.start = sim_proc_start(want.pid);
    want.serial = atomic_fetch_add(&s->next_serial, 1) + 1;
    char comm[64];
    if (read_file("/proc/self/comm", comm, sizeof comm) > 0) {
        comm[strcspn(comm, "\n")] = 0;
        memcpy(want.comm, comm, SIM_COMM - 1);
    }
    if (!open_client(&want))
        return NULL;
    struct sim_proc *p = claim_record(s, &want);
    if (!p) {
        sim_reap(s);
        p = claim_record(s, &want);
    }
    return p;
}
