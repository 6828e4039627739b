// SPDX-License-Identifier: Apache-2.0
//
// The shared file: its creation, its lock, and the changes of the records when memory is taken and
// given back.

#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SIM_MAGIC 0x73696d6375646131ull

enum { SIM_VERSION = 10 };

const char *sim_dir(void) {
    static char dir[3072];
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&once);
    if (!dir[0]) {
        const char *env = getenv("SIMCUDA_DIR");
        if (env && *env)
            snprintf(dir, sizeof dir, "%s", env);
        else
            snprintf(dir, sizeof dir, "/dev/shm/simcuda-%u", (unsigned)getuid());
    }
    pthread_mutex_unlock(&once);
    return dir;
}

uint64_t sim_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// The driver takes a sample of each process on a device in this interval.
enum { SAMPLE_US = 200000 };

uint64_t sim_sampled_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    return us / SAMPLE_US * SAMPLE_US;
}

static struct sim_state *map_state(int fd) {
    void *p = mmap(NULL, sizeof(struct sim_state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    // A forked child inherits this mapping, but the driver refuses all of its calls (drv_check).
    return p;
}

// Makes the folders. All users of the machine may use them, whatever the umask, because programs of
// several users share the simulated devices.
static int make_dirs(void) {
    char path[4096];
    if (mkdir(sim_dir(), 01777) == 0)
        chmod(sim_dir(), 01777);
    else if (errno != EEXIST)
        return -1;
    snprintf(path, sizeof path, "%s/clients", sim_dir());
    if (mkdir(path, 01777) == 0)
        chmod(path, 01777);
    else if (errno != EEXIST)
        return -1;
    return 0;
}

// Writes a whole state under a unique name, then links it. So only one of several creators
// succeeds, and no process opens an incomplete file.
static int create_state(const char *path) {
    char tmp[4200];
    snprintf(tmp, sizeof tmp, "%s.%d.%llu", path, (int)getpid(), (unsigned long long)sim_now_ns());
    int fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    int rc = -1;
    struct sim_state *s = NULL;
    if (fchmod(fd, 0666) == 0 && ftruncate(fd, sizeof *s) == 0 && (s = map_state(fd))) {
        sim_mutex_init(&s->lock);
        sim_mutex_init(&s->reap_lock);
        s->version = SIM_VERSION;
        if (sim_config_load(s) == 0) {
            s->magic = SIM_MAGIC;
            rc = link(tmp, path);
            if (rc != 0 && errno == EEXIST)
                rc = 0;
        }
        munmap(s, sizeof *s);
    }
    int saved = errno;
    unlink(tmp);
    close(fd);
    errno = saved;
    return rc;
}

struct sim_state *sim_open(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/state", sim_dir());
    if (make_dirs() != 0)
        return NULL;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        if (create_state(path) != 0)
            return NULL;
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    if (fd < 0)
        return NULL;
    struct stat st;
    struct sim_state *s = NULL;
    if (fstat(fd, &st) == 0 && st.st_size == (off_t)sizeof *s)
        s = map_state(fd);
    close(fd);
    if (s && (s->magic != SIM_MAGIC || s->version != SIM_VERSION)) {
        munmap(s, sizeof *s);
        s = NULL;
        errno = EPROTO;
    }
    return s;
}

// Adds the devices' sums up from the records. The lock is held.
static void recount_locked(struct sim_state *s) {
    uint32_t high = atomic_load(&s->proc_high);
    for (uint32_t d = 0; d < s->device_count; d++) {
        uint64_t used = 0, user = 0;
        for (uint32_t i = 0; i < high; i++) {
            struct sim_proc *p = &s->proc[i];
            if (atomic_load(&p->state) != SIM_PROC_LIVE)
                continue;
            user += atomic_load(&p->dev[d].user);
            used += atomic_load(&p->dev[d].user) + atomic_load(&p->dev[d].extra);
        }
        s->dev[d].used = used;
        s->dev[d].user = user;
        if (user > s->dev[d].user_peak)
            s->dev[d].user_peak = user;
    }
}

void sim_lock(struct sim_state *s) {
    if (sim_mutex_lock(&s->lock))
        recount_locked(s);
}

void sim_unlock(struct sim_state *s) {
    sim_mutex_unlock(&s->lock);
}

bool sim_present(const struct sim_state *s, int dev) {
    const struct sim_device *d = &s->dev[dev];
    return !atomic_load(&d->absent) &&
           (!d->instance_of || !atomic_load(&s->dev[d->instance_of - 1].absent));
}

bool sim_divided(const struct sim_state *s, int dev) {
    for (uint32_t i = 0; i < s->device_count; i++)
        if (s->dev[i].instance_of == (uint32_t)dev + 1 && sim_present(s, (int)i))
            return true;
    return false;
}

uint64_t sim_capacity(const struct sim_state *s, int dev) {
    uint64_t total = s->dev[dev].total, reserved = s->config.reserved_bytes;
    return total > reserved ? total - reserved : 0;
}

bool sim_outlived(const struct sim_state *s, const struct sim_proc *p, int dev) {
    return atomic_load_explicit(&p->dev[dev].life, memory_order_relaxed) !=
           atomic_load_explicit(&s->dev[dev].losses, memory_order_relaxed);
}

void sim_lose(struct sim_state *s, int dev) {
    sim_lock(s);
    atomic_store(&s->dev[dev].lost, 1);
    atomic_fetch_add(&s->dev[dev].losses, 1);
    for (uint32_t i = 0; i < atomic_load(&s->proc_high); i++) {
        struct sim_usage *u = &s->proc[i].dev[dev];
        atomic_store(&u->user, 0);
        atomic_store(&u->extra, 0);
        atomic_store(&u->paged, 0);
        atomic_store(&u->managed, 0);
        atomic_store(&u->allocs, 0);
        atomic_store(&u->streams, 0);
        atomic_store(&u->contexts, 0);
    }
    s->dev[dev].used = s->dev[dev].user = 0;
    sim_unlock(s);
}

// Changes a record and the sums. The record is complete at every instant: if a process is killed
// between two stores, the next holder of the lock adds the sums up again.
static void apply_locked(struct sim_state *s, struct sim_proc *p, int dev, struct sim_delta d) {
    struct sim_usage *u = &p->dev[dev];
    struct sim_device *g = &s->dev[dev];
    if (sim_outlived(s, p, dev))
        return;
    uint64_t user = atomic_load_explicit(&u->user, memory_order_relaxed) + (uint64_t)d.user;
    uint64_t extra = atomic_load_explicit(&u->extra, memory_order_relaxed) + (uint64_t)d.extra;
    atomic_store_explicit(&u->user, user, memory_order_relaxed);
    atomic_store_explicit(&u->extra, extra, memory_order_relaxed);
    if (user > atomic_load_explicit(&u->user_peak, memory_order_relaxed))
        atomic_store_explicit(&u->user_peak, user, memory_order_relaxed);
    if (d.allocs)
        atomic_fetch_add_explicit(&u->allocs, (uint32_t)d.allocs, memory_order_relaxed);
    if (d.streams)
        atomic_fetch_add_explicit(&u->streams, (uint32_t)d.streams, memory_order_relaxed);
    if (d.contexts)
        atomic_fetch_add_explicit(&u->contexts, (uint32_t)d.contexts, memory_order_relaxed);
    g->user += (uint64_t)d.user;
    g->used += (uint64_t)(d.user + d.extra);
    if (g->user > g->user_peak)
        g->user_peak = g->user;
}

static bool try_take(struct sim_state *s, struct sim_proc *p, int dev, struct sim_delta d) {
    uint64_t capacity = sim_capacity(s, dev);
    int64_t bytes = d.user + d.extra;
    sim_lock(s);
    if (bytes > 0 && s->config.managed_moves)
        sim_evict_locked(s, dev, (uint64_t)bytes);
    uint64_t used = s->dev[dev].used;
    bool fits = bytes <= 0 || (!sim_outlived(s, p, dev) && used <= capacity &&
                               (uint64_t)bytes <= capacity - used);
    if (fits)
        apply_locked(s, p, dev, d);
    sim_unlock(s);
    return fits;
}

bool sim_take(struct sim_state *s, struct sim_proc *p, int dev, struct sim_delta d) {
    if (try_take(s, p, dev, d))
        return true;
    if (d.user + d.extra > 0 && (uint64_t)(d.user + d.extra) > sim_capacity(s, dev))
        return false;
    sim_reap(s);
    bool fits = try_take(s, p, dev, d);
    if (!fits)
        atomic_fetch_add(&s->dev[dev].lacked, 1);
    return fits;
}

void sim_give_locked(struct sim_state *s, struct sim_proc *p, int dev, struct sim_delta d) {
    struct sim_delta minus = {-d.user, -d.extra, -d.allocs, -d.streams, -d.contexts};
    apply_locked(s, p, dev, minus);
}

void sim_give(struct sim_state *s, struct sim_proc *p, int dev, struct sim_delta d) {
    sim_lock(s);
    sim_give_locked(s, p, dev, d);
    sim_unlock(s);
}
