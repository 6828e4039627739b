// SPDX-License-Identifier: Apache-2.0
//
// A SPANK plug-in of Slurm. It adds the option --gpu-mem to srun, sbatch and salloc. On each node
// it binds the job to a budget of device memory before the job's first process exists. The budget
// is the job's shards times share= of plugstack.conf. A job with whole GPUs has no limit, and a job
// without shards and GPUs has the budget default=. --gpu-mem lowers the budget. prolog and epilog
// in this folder check the daemon before a job and close the job after it.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(gpuarb, 1);

#define UNUSED __attribute__((unused))
#define UNLIMITED UINT64_MAX
#define MOST (1ULL << 50) // the largest size that is read
#define WAIT_MS 30000     // the longest wait for output of gpuarb, or for its end

static struct {
    const char *gpuarb; // the command's absolute path
    uint64_t share;     // bytes of one shard
    uint64_t without;   // bytes of a job without shards and GPUs
} settings = {"/usr/bin/gpuarb", 1ULL << 30, 0};

static uint64_t wanted = UNLIMITED; // bytes of --gpu-mem; UNLIMITED: not given
static int mistaken;                // --gpu-mem or a setting was wrong: the step must fail

// Reads a size such as 512M or 4G, or bytes. Returns 0 if the text is a size.
static int read_size(const char *text, uint64_t *bytes) {
    static const char units[] = "KMGT";
    char *end;
    if (*text < '0' || *text > '9')
        return -1;
    unsigned long long n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if ((*end && (!unit || end[1 + strspn(end + 1, "iB")])) || n > MOST >> shift)
        return -1;
    *bytes = (uint64_t)n << shift;
    return 0;
}

// Reads the value of --gpu-mem. Slurm calls this in the user's srun, sbatch or salloc, and again on
// the node.
static int gpu_mem(int UNUSED val, const char *text, int UNUSED remote) {
    if (text && read_size(text, &wanted) == 0)
        return 0;
    mistaken = 1;
    slurm_error("--gpu-mem=%s is not a size. Write 512M or 4G", text ? text : "");
    return -1;
}

static struct spank_option option = {
    "gpu-mem", "SIZE", "device memory on each GPU; at most what the shards give", 1, 0, gpu_mem};

// Registers the option, and reads the arguments of the line in plugstack.conf.
int slurm_spank_init(spank_t sp, int ac, char **av) {
    for (int i = 0; i < ac; i++) {
        const char *value = strchr(av[i], '=');
        if (strncmp(av[i], "gpuarb=/", 8) == 0)
            settings.gpuarb = value + 1;
        else if (strncmp(av[i], "share=", 6) == 0)
            mistaken |= read_size(value + 1, &settings.share) != 0;
        else if (strncmp(av[i], "default=", 8) == 0)
            mistaken |= read_size(value + 1, &settings.without) != 0;
        else
            mistaken = 1;
    }
    if (mistaken)
        slurm_error("gpuarb: wrong argument in plugstack.conf. Write gpuarb=/PATH, share=SIZE "
                    "or default=SIZE, with sizes such as 512M or 4G");
    return mistaken || spank_option_register(sp, &option) != ESPANK_SUCCESS ? -1 : 0;
}

// Executes gpuarb in a child process, with an environment and descriptors of its own.
static void execute(char *const args[], int out) {
    static char *environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (chdir("/") != 0 || dup2(open("/dev/null", O_RDWR), 0) < 0 || dup2(out, 1) < 0 ||
        dup2(out, 2) < 0)
        _exit(127);
    if (syscall(SYS_close_range, 3, ~0U, 0) != 0) // before Linux 5.9
        for (int fd = 3; fd < 65536; fd++)
            close(fd);
    execve(settings.gpuarb, args, environment);
    _exit(127);
}

// Runs gpuarb. Returns 0 if it succeeded; otherwise logs the first line of its output as an error.
static int run(char *const args[]) {
    char said[1024] = "", more[1024];
    int ends[2], status = -1;
    if (pipe(ends) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        execute(args, ends[1]);
    close(ends[1]);
    struct pollfd from = {.fd = ends[0], .events = POLLIN};
    ssize_t n = 1;
    for (char *to = said; pid > 0 && n > 0; to = more) // only the first output is kept
        n = poll(&from, 1, WAIT_MS) == 1 ? read(ends[0], to, sizeof said - 1) : -1;
    close(ends[0]);
    if (pid > 0 && n < 0)
        kill(pid, SIGKILL);
    if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0)
        return 0;
    said[strcspn(said, "\n")] = '\0';
    slurm_error("gpuarb: the device memory of the step cannot be limited: %s: %s", settings.gpuarb,
                said[0] ? said : "cannot be executed, or does not answer");
    return -1;
}

// Returns how many of a generic resource a node has given to a job, from a text such as
// "gpu:a100:1(IDX:0),shard:2(IDX:1)".
static uint64_t count(const char *text, const char *name) {
    uint64_t sum = 0;
    for (const char *at = text; at && (at = strstr(at, name)); at++) {
        const char *digits = strchr(at, '(');
        if ((at != text && at[-1] != ',') || !digits)
            continue;
        while (digits > at && digits[-1] != ':')
            digits--;
        sum += strtoull(digits, NULL, 10);
    }
    return sum;
}

// Asks slurmctld what the job has on this node, because a user can change a step's environment.
// Writes the job's budget and name. Returns 0, or -1 after an error.
static int ask(uint32_t id, uint64_t *bytes, char name[64]) {
    job_info_msg_t *message = NULL;
    char host[256] = "";
    if (slurm_load_job(&message, id, SHOW_DETAIL) != 0 || message->record_count < 1) {
        slurm_error("gpuarb: the step may not run, because slurmctld does not tell its shards");
        return -1;
    }
    slurm_job_info_t *job = message->job_array;
    hostlist_t nodes = slurm_hostlist_create(job->nodes);
    uint32_t index = 0; // if the node is not found, -1 becomes an index beyond the last entry
    if (job->gres_detail_cnt > 1 && gethostname(host, sizeof host - 1) == 0)
        index = (uint32_t)slurm_hostlist_find(nodes, strtok(host, "."));
    slurm_hostlist_destroy(nodes);
    const char *has = index < job->gres_detail_cnt ? job->gres_detail_str[index] : NULL;
    uint64_t shards = count(has, "shard:");
    *bytes = shards ? shards * settings.share : count(has, "gpu:") ? UNLIMITED : settings.without;
    if (job->array_job_id)
        snprintf(name, 64, "slurm-%u_%u", job->array_job_id, job->array_task_id);
    else
        snprintf(name, 64, "slurm-%u", id);
    slurm_free_job_info_msg(message);
    return 0;
}

// Writes the path of the job's cgroup: the part of this process's cgroup path up to job_ID.
static int job_cgroup(uint32_t id, char path[1024]) {
    char part[32];
    int length = snprintf(part, sizeof part, "/job_%u", id);
    FILE *f = fopen("/proc/self/cgroup", "re");
    char *job = NULL;
    while (!job && f && fgets(path, 1024, f))
        if ((job = strstr(path, part)) && !strchr("/\n", job[length]))
            job = NULL;
    if (f)
        fclose(f);
    if (!job) {
        slurm_error("gpuarb: the step has no cgroup: set ProctrackType=proctrack/cgroup");
        return -1;
    }
    job[length] = '\0';
    memmove(path, strchr(path, '/'), strlen(strchr(path, '/')) + 1);
    return 0;
}

// Opens the job. Slurm calls this as root for each step, before the step has processes.
int slurm_spank_init_post_opt(spank_t sp, int UNUSED ac, char UNUSED **av) {
    char cgroup[1024], name[64], memory[32] = "100%", limit[48];
    uint32_t id;
    uint64_t bytes = 0;
    if (spank_context() != S_CTX_REMOTE)
        return 0;
    if (mistaken || spank_get_item(sp, S_JOB_ID, &id) || ask(id, &bytes, name) ||
        job_cgroup(id, cgroup))
        return -1;
    if (bytes != UNLIMITED) // `job open` refuses 0: open with 1 byte, then set memory.max=0
        snprintf(memory, sizeof memory, "%llu", (unsigned long long)bytes + !bytes);
    uint64_t most = wanted < bytes ? wanted : bytes;
    snprintf(limit, sizeof limit, "memory.max=%llu", (unsigned long long)most);
    char *bind[] = {"gpuarb", "job", "open",       "--cgroup", cgroup,    "--memory", memory,
                    "--name", name,  "--contexts", "inside",   "--until", "gone",     NULL};
    char *narrow[] = {"gpuarb", "limit", "--job", name, limit, NULL};
    return run(bind) || ((most < bytes || !bytes) && run(narrow)) ? -1 : 0;
}
