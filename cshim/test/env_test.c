// SPDX-License-Identifier: Apache-2.0
// Unit test of core/env.c and core/log.c: the parsing of variables, and the writing of lines.
#include "core/env.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "core/environ.h"
#include "core/log.h"
#include "core/os.h"
#include "core/wire.h"

// Returns the value of a text: "no" for an invalid size, "max", thousandths of a device, or bytes.
static const char *spelled(const char *text) {
    static char word[32];
    uint64_t bytes = 0;
    uint32_t share = 0;
    bool is_share = ga_env_share(text, &share);
    if (is_share && share > 0)
        snprintf(word, sizeof word, "%u/1000", share);
    else if (!is_share && !ga_env_size(text, &bytes))
        return "no";
    else if (bytes == GA_NO_LIMIT)
        return "max";
    else
        snprintf(word, sizeof word, "%llu", (unsigned long long)bytes);
    return word;
}

// Checks each row of the table that also tests accounting.ParseSize.
static void sizes(const char *path) {
    char row[256];
    int rows = 0;
    FILE *table = fopen(path, "r");
    CHECK(table);
    while (fgets(row, sizeof row, table)) {
        row[strcspn(row, "\n")] = 0;
        char *text = strchr(row, '\t');
        if (!text)
            continue; // a comment line
        *text++ = 0;
        rows++;
        if (strcmp(spelled(text), row) != 0) {
            fprintf(stderr, "size %s: %s, not %s\n", text, spelled(text), row);
            exit(1);
        }
    }
    fclose(table);
    CHECK(rows > 50);
}

static void reserve(const char *text, bool ok, uint64_t want) {
    struct ga_env env;
    setenv("GPUARB_STREAM_RESERVE", text, 1);
    ga_env_read(&env);
    unsetenv("GPUARB_STREAM_RESERVE");
    if (!env.malformed != ok || (ok && env.hello.stream_reserve != want)) {
        fprintf(stderr, "reserve %s: %llu\n", text, (unsigned long long)env.hello.stream_reserve);
        exit(1);
    }
}

// A count below 1 is read as 1, a count that is too large as the largest; other texts are ignored.
static void slots(const char *text, uint32_t want) {
    struct ga_env env;
    setenv("GPUARB_SLOTS", text, 1);
    ga_env_read(&env);
    if (env.hello.slots != want || env.malformed) {
        fprintf(stderr, "slots %s: %u\n", text, env.hello.slots);
        exit(1);
    }
}

static void arbitration(void) {
    struct ga_env env;
    slots("3", 3);
    slots("0", 1);
    slots("-4", 1);
    slots("99999999999999999999999", UINT32_MAX);
    slots("", 0);
    slots("two", 0);
    slots("2x", 0);
    slots("1.5", 0);
    slots("-", 0);
    setenv("GPUARB_ON_FULL", "wait", 1);
    setenv("GPUARB_SLOT_SCOPE", "thread", 1);
    setenv("GPUARB_SLOTS", "", 1);
    ga_env_read(&env);
    CHECK(env.hello.on_full == GA_ON_FULL_WAIT && env.hello.slot_scope == GA_SCOPE_THREAD &&
          !env.malformed);
    setenv("GPUARB_ON_FULL", "deny", 1);
    setenv("GPUARB_SLOT_SCOPE", "job", 1);
    ga_env_read(&env);
    CHECK(env.hello.on_full == GA_ON_FULL_DENY && env.hello.slot_scope == GA_SCOPE_JOB);
    setenv("GPUARB_ON_FULL", "perhaps", 1);
    setenv("GPUARB_SLOT_SCOPE", "threads", 1);
    ga_env_read(&env);
    CHECK(env.hello.on_full == 0 && env.hello.slot_scope == 0);
    CHECK(env.refuse_first == GA_FIRST_BY_RULE);
    setenv("GPUARB_REFUSE_FIRST", "1", 1);
    ga_env_read(&env);
    CHECK(env.refuse_first == GA_FIRST_REFUSED);
    setenv("GPUARB_REFUSE_FIRST", "0", 1);
    ga_env_read(&env);
    CHECK(env.refuse_first == GA_FIRST_WAITS);
    setenv("GPUARB_REFUSE_FIRST", "", 1);
    ga_env_read(&env);
    CHECK(env.refuse_first == GA_FIRST_BY_RULE);
}

static bool is_pending(int sig) {
    sigset_t pending;
    CHECK(sigpending(&pending) == 0);
    return sigismember(&pending, sig);
}

// A pipe without reader, a full pipe and a full file: the program is neither ended nor stopped.
static void writes(void) {
    int ends[2];
    char text[4096] = "";
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    while (write(ends[1], text, sizeof text) > 0)
        continue;
    CHECK(fcntl(ends[1], F_SETFL, 0) == 0);
    ga_os_write(ends[1], "full", 4, 1);
    while (read(ends[0], text, sizeof text) > 0)
        continue;
    ga_os_write(ends[1], "room", 4, 1);
    CHECK(read(ends[0], text, sizeof text) == 4 && memcmp(text, "room", 4) == 0);
    close(ends[0]);
    ga_os_write(ends[1], "gone", 4, 1);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    ga_os_write(ends[1], "gone", 4, 1);
    CHECK(!is_pending(SIGPIPE));
    raise(SIGPIPE); // a signal of the program itself
    ga_os_write(ends[1], "gone", 4, 1);
    CHECK(is_pending(SIGPIPE));
    signal(SIGPIPE, SIG_IGN);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
    signal(SIGPIPE, SIG_DFL);
    close(ends[1]);

    struct rlimit was;
    FILE *file = tmpfile();
    CHECK(file && getrlimit(RLIMIT_FSIZE, &was) == 0);
    struct rlimit none = {0, was.rlim_max};
    CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
    ga_os_write(fileno(file), "long", 4, 1);
    CHECK(setrlimit(RLIMIT_FSIZE, &was) == 0);
    fclose(file);
}

#define ENTRUSTED "entrusted"

// A setgid program: its group differs from that of the user who starts it.
static void entrusted(char *self) {
    if (geteuid() != 0)
        return; // only root can change the group
    pid_t child = fork();
    if (child == 0) {
        char *args[] = {self, ENTRUSTED, NULL};
        char *env[] = {"GPUARB_SOCKET=/a/spy", NULL};
        CHECK(setegid(getegid() + 1) == 0);
        execve("/proc/self/exe", args, env);
        _exit(2);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    if (strcmp(argv[1], ENTRUSTED) == 0) {
        CHECK(getenv("GPUARB_SOCKET") && !ga_environ_get("GPUARB_SOCKET"));
        return 0;
    }
    sizes(argv[1]);
    writes();
    entrusted(argv[0]);

    reserve("256", true, 256);
    reserve("256M", true, 256ull << 20);
    reserve("1G", true, 1ull << 30);
    reserve("512KiB", true, 512ull << 10);
    reserve("1B", true, 1);
    reserve("1000T", true, GA_CREDIT_LIMIT);
    reserve("0", true, GA_NO_LIMIT);
    reserve("0M", true, GA_NO_LIMIT);
    reserve("-1", false, 0);
    reserve("much", false, 0);
    reserve("", true, GA_NO_LIMIT);

    struct ga_env env;
    setenv("GPUARB_JOB", "00112233445566778899aabbccddeeff", 1);
    setenv("GPUARB_MEMORY", "12.5%", 1);
    setenv("GPUARB_STREAMS", "0", 1);
    setenv("GPUARB_VIRTUALIZE", "0", 1);
    setenv("GPUARB_SOCKET", "/some/where", 1);
    unsetenv("GPUARB_ON_LOSS");
    ga_env_read(&env);
    CHECK(env.in_job && env.hello.job[1] == 0x11 && env.hello.job[15] == 0xff && env.loss_closed);
    CHECK(env.hello.memory == GA_NO_LIMIT && env.hello.share == 125 && env.hello.streams == 1);
    CHECK(!env.virtualize && strcmp(env.socket[0], "/some/where") == 0 && !env.socket[1][0]);
    CHECK(!env.malformed);

    setenv("GPUARB_JOB", "00112233445566778899aabbccddeegg", 1);
    setenv("GPUARB_MEMORY", "lots", 1);
    setenv("GPUARB_STREAMS", "many", 1);
    unsetenv("GPUARB_VIRTUALIZE");
    unsetenv("GPUARB_SOCKET");
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    ga_env_read(&env);
    CHECK(!env.in_job && env.hello.job[1] == 0); // no part of the token was stored
    setenv("GPUARB_JOB", "0011", 1);
    ga_env_read(&env);
    CHECK(!env.in_job && !env.loss_closed && env.hello.memory == GA_NO_LIMIT &&
          env.hello.share == 0);
    CHECK(env.hello.streams == 0 && env.virtualize);
    CHECK(env.malformed && strcmp(env.malformed, "GPUARB_MEMORY") == 0);
    CHECK(strcmp(env.malformed_value, "lots") == 0);
    unsetenv("GPUARB_MEMORY");
    unsetenv("GPUARB_STREAMS");
    CHECK(strcmp(env.socket[0], "/run/user/7/gpuarb/gpuarb.sock") == 0);
    CHECK(strcmp(env.socket[1], "/run/gpuarb/gpuarb.sock") == 0);
    CHECK(strcmp(env.socket[2], "/run/gpuarb/client/gpuarb.sock") == 0);

    arbitration();

    char line[16];
    CHECK(ga_log_format(line, sizeof line, "%u|%d|%x|%s%%", (uint64_t)7, (int64_t)-3, (uint64_t)255,
                        "ab") == 11);
    CHECK(strcmp(line, "7|-3|ff|ab%") == 0);
    CHECK(ga_log_format(line, 5, "%s", "abcdefgh") == 4 && strcmp(line, "abcd") == 0);
    return 0;
}
