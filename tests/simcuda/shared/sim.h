// SPDX-License-Identifier: Apache-2.0
//
// The state that all processes of one simulated machine share: its devices, and what each process
// that opened the driver holds. libcuda, libnvidia-ml and the oracle read this one file.
//
// The records of the processes are the truth. The sums for each device are stored beside them only
// for speed. A record and its sum are changed together under one robust mutex. If a holder of the
// mutex dies, the next holder adds the records up again.
#ifndef SIMCUDA_SIM_H
#define SIMCUDA_SIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SIM_MAX_DEVICES = 64,
    SIM_MAX_PROCS = 4096,
    SIM_MAX_RULES = 32,
    SIM_MAX_LOANS = 1024,
    SIM_PATTERN = 64,
    SIM_COMM = 16,
};

// Effect of a rule on a call, besides returning a code.
enum sim_action { SIM_ACT_FAIL, SIM_ACT_DELAY, SIM_ACT_KILL, SIM_ACT_STOP };

// One injected fault: calls number first..last (counted from 1) of the functions that match.
struct sim_rule {
    char pattern[SIM_PATTERN]; // fnmatch(3) over exported names
    uint64_t first, last;
    uint64_t every; // 0: each call in the range, n: each n-th
    uint64_t delay_ns;
    int32_t action;
    int32_t code;
    int32_t pid;            // 0: any process
    int32_t per_process;    // count the calls of each process on its own
    _Atomic uint64_t calls; // calls of all processes
    _Atomic uint64_t hits;
};

enum { SIM_DRIVER_VERSION = 12050, SIM_COMPUTE_MAJOR = 8, SIM_COMPUTE_MINOR = 6 };
// Functions that NVML can be configured to lack (SIMCUDA_NVML_LACKS).
enum {
    SIM_LACKS_MEMORY = 1,
    SIM_LACKS_PCI = 2,
    SIM_LACKS_NAME = 4,
    SIM_LACKS_PROCESSES = 8,
    SIM_LACKS_UTILIZATION = 16,
    SIM_LACKS_LIMITS = 32,
};
enum { SIM_NVML_COMPUTE, SIM_NVML_GRAPHICS, SIM_NVML_MPS, SIM_NVML_NO_FIGURES };

// Configuration of the machine. The process that creates the folder sets it once, from its
// environment.
struct sim_config {
    uint64_t context_bytes;
    uint64_t pool_granule;      // pools are made of chunks of it; 0: they count bytes
    uint64_t pitch;             // rows of pitched memory are rounded up to it
    uint64_t reserved_bytes;    // bytes of each device that the driver reserves
    uint64_t stream_delay_ns;   // per operation on a stream
    uint64_t alloc_delay_ns;    // per allocation
    int64_t release_delay_ms;   // a dead process's memory comes back late; -1: on `simcuda release`
    int32_t lost_code;          // what calls on a lost device return
    int32_t nvml_order_reverse; // NVML counts the devices from the other end
    int32_t reuse_handles;      // a handle is used again as soon as may be
    int32_t handles_apart;      // handles of memory, libraries and arrays may equal others
    int32_t pool_remap;         // whole free granules of a pool become part of another chunk
    int32_t managed_moves;      // managed memory is on a device only after a prefetch
    int32_t nvml_list;          // NVML's list that has the processes: SIM_NVML_…
    int32_t nvml_lacks;         // bits of SIM_LACKS_…
};

struct sim_device {
    char name[64];
    uint8_t uuid[16];
    uint32_t pci_domain, pci_bus, pci_device;
    uint64_t total;     // bytes of the card, as NVML reports them
    uint64_t used;      // guarded by lock: sum over the records, user + extra
    uint64_t user;      // guarded by lock: sum over the records, user alone
    uint64_t user_peak; // guarded by lock
    _Atomic uint32_t lost;
    _Atomic uint32_t losses; // number of times that it was lost
    _Atomic uint32_t absent; // not there yet, or gone: for CUDA, and for an NVML that starts now
    uint32_t hidden;         // CUDA shows it, and NVML does not
    uint32_t instance_of;    // MIG instance: number of its GPU + 1; else 0
    _Atomic uint64_t asked;  // number of NVML calls that named it
    _Atomic uint64_t lacked; // number of requests that found too little free memory
};

// Memory of one process on one device. Only that process writes it, under the lock.
struct sim_usage {
    _Atomic uint64_t user;  // bytes that its program asked for and has not freed
    _Atomic uint64_t extra; // contexts, rounding, unused memory of pools
    _Atomic uint64_t user_peak;
    _Atomic uint64_t managed, paged; // bytes of managed memory that moves; those here (in extra)
    _Atomic uint32_t allocs, streams, contexts;
    _Atomic uint32_t busy;     // percent of the processors that it uses, as `simcuda busy` sets it
    _Atomic uint32_t was_busy; // the percentage before it became 0
    _Atomic uint64_t was_busy_at_us; // time of the last sample of that
    _Atomic uint32_t
        life; // losses of the device when the process began; memory does not survive a loss
};

enum sim_proc_state { SIM_PROC_FREE, SIM_PROC_LIVE };

struct sim_proc {
    _Atomic uint32_t state; // enum sim_proc_state, guarded by lock for writing
    int32_t pid;
    uint64_t start;      // start of the process, in clock ticks since boot
    uint64_t serial;     // name of its client file; never used twice
    uint64_t client_ino; // mapped as long as the process image that made the record lives
    _Atomic uint64_t dead_since_ns; // when its death was first noticed, 0 before
    _Atomic uint64_t host;          // bytes of host memory that the driver keeps page-locked
    _Atomic uint32_t release_now;
    uint32_t uid;
    uint64_t pid_namespace; // namespace of pid
    char comm[SIM_COMM];
    struct sim_usage dev[SIM_MAX_DEVICES];
};

// An import of another process's memory. Guarded by lock.
struct sim_loan {
    uint64_t owner;  // serial of the owner; 0: the row is free
    uint64_t object; // the owner's number of the memory
    uint64_t bytes;
    int32_t dev;
    uint32_t borrower; // record of the importer
    uint32_t carried;  // the owner has released it: the bytes are in the borrower's record
};
#define SIM_ANY_OBJECT UINT64_MAX

struct sim_state {
    uint64_t magic;
    uint32_t version;
    uint32_t device_count;
    struct sim_config config;
    pthread_mutex_t lock;      // robust: sums, records, rules
    pthread_mutex_t reap_lock; // robust: one collector at a time; taken before lock
    _Atomic uint64_t next_serial;
    _Atomic uint64_t rules_epoch; // changes with every change of the rules
    _Atomic uint32_t rule_count;
    _Atomic uint32_t proc_high; // no record at or above it was ever used
    _Atomic uint64_t next_event;
    _Atomic uint32_t loans; // rows in use
    uint32_t loan_high;     // guarded by lock: no row at or above it was ever used
    struct sim_device dev[SIM_MAX_DEVICES];
    struct sim_rule rule[SIM_MAX_RULES];
    struct sim_proc proc[SIM_MAX_PROCS];
    struct sim_loan loan[SIM_MAX_LOANS];
};

// mutex.c: robust mutexes of the shared file. sim_mutex_lock returns true if the last holder
// died while it held the mutex.
void sim_mutex_init(pthread_mutex_t *m);
bool sim_mutex_lock(pthread_mutex_t *m);
void sim_mutex_unlock(pthread_mutex_t *m);

// state.c: the shared file.
struct sim_state *
sim_open(void);            // maps the folder's state, creating it if need be; NULL with errno
const char *sim_dir(void); // the folder, resolved once per process image
void sim_lock(struct sim_state *s);
void sim_unlock(struct sim_state *s);
uint64_t sim_now_ns(void);
uint64_t
sim_sampled_us(void); // time of the driver's last samples of utilisation, by the wall clock
uint64_t sim_capacity(const struct sim_state *s, int dev); // bytes that programs may take
bool sim_present(const struct sim_state *s,
                 int dev); // reports whether a device, and for a MIG instance its GPU, is present
bool sim_divided(const struct sim_state *s,
                 int dev); // reports whether a MIG instance of it is present

// Takes memory on a device for a process. If it does not fit, dead processes are collected first.
struct sim_delta {
    int64_t user, extra;
    int32_t allocs, streams, contexts;
};
bool sim_take(struct sim_state *s, struct sim_proc *p, int dev, struct sim_delta d);

// Makes a device fall off the bus, with all memory on it. Processes that used it before have no
// memory there, also after it is back.
void sim_lose(struct sim_state *s, int dev);
bool sim_outlived(const struct sim_state *s, const struct sim_proc *p, int dev);
void sim_give(struct sim_state *s, struct sim_proc *p, int dev, struct sim_delta d);
void sim_give_locked(struct sim_state *s, struct sim_proc *p, int dev, struct sim_delta d);

// paged.c: managed memory, which moves between device and host. The function sim_managed adds bytes
// to the managed memory of the process. The function sim_page moves up to `in` bytes of it to the
// device, if there is room, and up to `out` bytes away. The function sim_evict_locked moves managed
// memory of all processes away until `bytes` have room on the device.
void sim_managed(struct sim_state *s, struct sim_proc *p, int dev, int64_t bytes);
void sim_page(struct sim_state *s, struct sim_proc *p, int dev, uint64_t in, uint64_t out);
void sim_evict_locked(struct sim_state *s, int dev, uint64_t bytes);

// loan.c: memory that other processes have imported.
bool sim_borrow(struct sim_state *s, struct sim_proc *p, const struct sim_loan *what);
void sim_return(struct sim_state *s, struct sim_proc *p, uint64_t owner, uint64_t object);
// Gives back an object that may have been imported: importers then keep it.
void sim_give_imported(struct sim_state *s, struct sim_proc *p, int dev, struct sim_delta d,
                       uint64_t object);
// Ends all imports of an object, because the owner uses its memory for something else.
void sim_end_imports(struct sim_state *s, struct sim_proc *p, uint64_t object);
void sim_loans_end_locked(struct sim_state *s,
                          struct sim_proc *p); // ends the loans of a dead process

// config.c: the environment of the first process.
int sim_config_load(struct sim_state *s);
bool sim_parse_size(const char *text, uint64_t *bytes);
int sim_rule_parse(const char *text, struct sim_rule *out); // 0, or -1 for nonsense

// process.c: processes with memory, and dead processes.
struct sim_proc *sim_proc_register(struct sim_state *s);
void sim_reap(struct sim_state *s); // frees the memory of dead processes
bool sim_proc_alive(pid_t pid, uint64_t start);
int32_t sim_proc_pid(const struct sim_proc *p); // PID in the calling process's namespace
uint64_t sim_proc_start(pid_t pid);             // 0: no such process

#endif
