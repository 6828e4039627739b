// SPDX-License-Identifier: Apache-2.0
// cudaprog: an ordinary program that uses the CUDA driver API, and executes commands.
//
//   cudaprog-dlsym  finds the driver by dlopen and dlsym      [--device N] [--context none|
//   cudaprog-link   is linked against libcuda                  create|primary|runtime] [COMMAND…]
//   cudaprog-gpa    has everything from cuGetProcAddress_v2
//
// Commands come from the arguments (each may hold several, separated by ;). Without arguments, or
// with -, they come from stdin, one in a line. Each command answers with exactly one line on
// stdout, flushed: its first word, its first argument if it has one, then "ok" and results, or "err
// N" with the driver's code. After the last command the program ends with status 0. If a command
// cannot be understood, the program prints "what?" and ends with status 2. Sizes: 1024, 4K, 1M, 2G.
// Streams: a name, or 0 (default), 1 (legacy), 2 (per thread).
//
// Before the first command the program calls cuInit and makes a context on --device (default 0).
// --context create is the default, and none makes no context. Then it prints "ready", or "init err
// N" and ends with status 1. --visible sets CUDA_VISIBLE_DEVICES before that, as a script may.
//
// cudaprog_memory.c and the other cudaprog_*.c describe their commands. The commands here:
//
//   pid                          "pid ok 1234"
//   init                         cuInit and a context again: in a forked child
//   fork … join                  a child runs the commands between them; the parent then
//                                prints "fork ok STATUS". Not nested.
//   exec PROGRAM [ARGUMENT…]     executes another program in the process
//   closefds                     closes all descriptors above 2
//   noroom BYTES                 limits the address space to BYTES more than now: RLIMIT_AS
//   setuid                       setuid to its own user, which libc makes all threads do
//   reload                       dlclose, dlopen and look up again (dlsym, gpa)
//   sleep MS; hold               hold: waits for the end of stdin
//   print TEXT; exit STATUS; kill SIGNAL
#include "cudaprog.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMES 4096

static struct name names[NAMES];
static size_t n_names;
CUdevice device;

void misunderstood(const struct command *c) {
    printf("what? %s\n", c->words ? c->word[0] : "");
    fflush(stdout);
    _exit(2);
}

void answer(const struct command *c, CUresult result, const char *more) {
    bool named = c->words > 1 && !(c->word[1][0] >= '0' && c->word[1][0] <= '9');
    printf("%s%s%s ", c->word[0], named ? " " : "", named ? c->word[1] : "");
    if (result == 0)
        printf("ok%s%s\n", *more ? " " : "", more);
    else
        printf("err %d\n", result);
    fflush(stdout);
}

bool ends_with(const char *text, const char *end) {
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

const char *word(const struct command *c, int i) {
    if (i >= c->words)
        misunderstood(c);
    return c->word[i];
}

uint64_t number(const struct command *c, int i) {
    char *end;
    uint64_t value = strtoull(word(c, i), &end, 0);
    switch (*end) {
    case 'T':
        value <<= 10; // fallthrough
        __attribute__((fallthrough));
    case 'G':
        value <<= 10;
        __attribute__((fallthrough));
    case 'M':
        value <<= 10;
        __attribute__((fallthrough));
    case 'K':
        value <<= 10;
        end++;
    }
    if (*end)
        misunderstood(c);
    return value;
}

uint64_t number_or(const struct command *c, int i, uint64_t otherwise) {
    return i < c->words ? number(c, i) : otherwise;
}

struct name *lookup(const struct command *c, int i, bool make) {
    const char *text = word(c, i);
    for (size_t n = 0; n < n_names; n++)
        if (strcmp(names[n].text, text) == 0)
            return &names[n];
    if (!make || n_names == NAMES || strlen(text) >= sizeof names[0].text)
        misunderstood(c);
    strcpy(names[n_names].text, text);
    return &names[n_names++];
}

CUstream stream(const struct command *c, int i) {
    const char *text = word(c, i);
    if (text[0] >= '0' && text[0] <= '2' && !text[1])
        return (CUstream)(uintptr_t)(text[0] - '0');
    return (CUstream)(uintptr_t)lookup(c, i, false)->value;
}

// The process

static CUresult begin(const char *how);

static void do_init(const struct command *c) {
    answer(c, begin("create"), "");
}

static void do_pid(const struct command *c) {
    char more[16];
    snprintf(more, sizeof more, "%d", (int)getpid());
    answer(c, 0, more);
}

static void do_exec(const struct command *c) {
    char *arguments[WORDS + 1] = {NULL};
    for (int i = 1; i < c->words; i++)
        arguments[i - 1] = c->word[i];
    word(c, 1);
    execvp(arguments[0], arguments);
    answer(c, errno, "");
}

static void do_closefds(const struct command *c) {
    for (int fd = 3; fd < 4096; fd++)
        close(fd);
    answer(c, 0, "");
}

static void do_noroom(const struct command *c) {
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    bool read = f && fscanf(f, "%lu", &pages) == 1;
    if (f)
        fclose(f);
    rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (rlim_t)number(c, 1);
    struct rlimit limit = {most, most};
    answer(c, read && setrlimit(RLIMIT_AS, &limit) == 0 ? 0 : 1, "");
}

static void do_setuid(const struct command *c) {
    answer(c, setuid(getuid()) == 0 ? 0 : errno, "");
}

static void do_reload(const struct command *c) {
    cu_close();
    CUresult r = cu_open();
    if (r == 0)
        r = CU(cuInit)(0);
    answer(c, r, "");
}

static void do_sleep(const struct command *c) {
    usleep((useconds_t)number(c, 1) * 1000);
    answer(c, 0, "");
}

static void do_hold(const struct command *c) {
    char buffer[64];
    answer(c, 0, "");
    while (read(0, buffer, sizeof buffer) > 0)
        ;
}

static void do_print(const struct command *c) {
    answer(c, 0, "");
}

static void do_exit(const struct command *c) {
    exit((int)number(c, 1));
}

static void do_kill(const struct command *c) {
    kill(getpid(), (int)number(c, 1));
    answer(c, 0, "");
}

static const struct verb process_verbs[] = {
    {"pid", do_pid},       {"exec", do_exec},     {"closefds", do_closefds}, {"noroom", do_noroom},
    {"setuid", do_setuid}, {"reload", do_reload}, {"sleep", do_sleep},       {"hold", do_hold},
    {"print", do_print},   {"exit", do_exit},     {"kill", do_kill},         {"init", do_init},
    {NULL, NULL},
};

static const struct verb *const verbs[] = {
    process_verbs,  memory_verbs,    threads_verbs, arrays_verbs, mappings_verbs,
    foreign_verbs,  places_verbs,    streams_verbs, pools_verbs,  graphs_verbs,
    contexts_verbs, questions_verbs, modules_verbs,
};

// fork … join: the child runs the commands between, the parent skips them.
static bool skipping;
static bool in_child;
static pid_t child;

static void start_child(void) {
    fflush(stdout);
    child = fork();
    in_child = child == 0;
    skipping = child > 0;
}

static void join_child(void) {
    int status = 0;
    if (in_child) {
        fflush(stdout);
        _exit(0);
    }
    skipping = false;
    waitpid(child, &status, 0);
    printf("fork ok %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    fflush(stdout);
}

static const struct verb *find(const char *name) {
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        for (const struct verb *v = verbs[i]; v->name; v++)
            if (strcmp(v->name, name) == 0)
                return v;
    return NULL;
}

static void run(char *text) {
    struct command c = {.words = 0};
    char *rest = NULL;
    for (char *w = strtok_r(text, " \t\r\n", &rest); w && c.words < WORDS;
         w = strtok_r(NULL, " \t\r\n", &rest))
        c.word[c.words++] = w;
    if (c.words == 0 || c.word[0][0] == '#')
        return;
    if (strcmp(c.word[0], "join") == 0) {
        join_child();
        return;
    }
    if (skipping)
        return;
    if (strcmp(c.word[0], "fork") == 0) {
        start_child();
        return;
    }
    const struct verb *verb = find(c.word[0]);
    if (!verb)
        misunderstood(&c);
    verb->run(&c);
}

static void run_line(char *line, bool from_stdin) {
    char *rest = NULL;
    for (char *one = strtok_r(line, ";", &rest); one; one = strtok_r(NULL, ";", &rest))
        run(one);
    // The child continues to read the same stdin, up to its join.
    if (skipping && from_stdin)
        join_child();
}

static CUresult begin(const char *how) {
    CUcontext context = NULL;
    CUresult r = CU(cuInit)(0);
    if (r == 0 && strcmp(how, "none") != 0)
        r = make_context(how, &context);
    if (r == 0) {
        struct name *n = &names[n_names++];
        strcpy(n->text, "first"); // the context's name
        n->value = (uintptr_t)context;
    }
    return r;
}

int main(int argc, char **argv) {
    const char *how = "create";
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--device") == 0)
            device = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--context") == 0)
            how = argv[i + 1];
        else if (strcmp(argv[i], "--visible") == 0)
            setenv("CUDA_VISIBLE_DEVICES", argv[i + 1], 1);
        else
            misunderstood(&(struct command){{argv[i]}, 1});
    }
    if (cu_open() != 0)
        return 1;
    CUresult r = begin(how);
    if (r != 0) {
        printf("init err %d\n", r);
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    if (i < argc && strcmp(argv[i], "-") != 0) {
        for (; i < argc; i++)
            run_line(argv[i], false);
        return 0;
    }
    static char line[4096];
    setvbuf(stdin, NULL, _IONBF, 0); // a forked child reads only its own lines
    while (fgets(line, sizeof line, stdin))
        run_line(line, true);
    return 0;
}
