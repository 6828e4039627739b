// SPDX-License-Identifier: Apache-2.0
// How the variables are read.
#include "../env.h"

#include <string.h>

#include "../log.h"
#include "../wire.h"
#include "check.h"

static void size(const char *text, bool ok, uint64_t want) {
    uint64_t got = 0;
    if (ga_env_size(text, &got) != ok || (ok && got != want)) {
        fprintf(stderr, "size %s: %llu\n", text, (unsigned long long)got);
        exit(1);
    }
}

static void reserve(const char *text, bool ok, uint64_t want) {
    struct ga_env env;
    setenv("GPUARB_STREAM_RESERVE", text, 1);
    ga_env_read(&env);
    unsetenv("GPUARB_STREAM_RESERVE");
    if (!env.wrong != ok || (ok && env.stream_reserve != want)) {
        fprintf(stderr, "reserve %s: %llu\n", text, (unsigned long long)env.stream_reserve);
        exit(1);
    }
}

// Who reads a number below 1 means 1, and one too large the largest; nonsense is no wish.
static void slots(const char *text, uint32_t want) {
    struct ga_env env;
    setenv("GPUARB_SLOTS", text, 1);
    ga_env_read(&env);
    if (env.slots != want || env.wrong) {
        fprintf(stderr, "slots %s: %u\n", text, env.slots);
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
    CHECK(env.on_full == GA_ON_FULL_WAIT && env.slot_scope == GA_SCOPE_THREAD && !env.wrong);
    setenv("GPUARB_ON_FULL", "deny", 1);
    setenv("GPUARB_SLOT_SCOPE", "job", 1);
    ga_env_read(&env);
    CHECK(env.on_full == GA_ON_FULL_DENY && env.slot_scope == GA_SCOPE_JOB);
    setenv("GPUARB_ON_FULL", "perhaps", 1);
    setenv("GPUARB_SLOT_SCOPE", "threads", 1);
    ga_env_read(&env);
    CHECK(env.on_full == 0 && env.slot_scope == 0);
}

int main(void) {
    size("4G", true, 4ull << 30);
    size("4GiB", true, 4ull << 30);
    size("4gb", true, 4ull << 30);
    size("4096M", true, 4ull << 30);
    size("1.5G", true, 3ull << 29);
    size("123", true, 123);
    size("123B", true, 123);
    size("0", true, 0);
    size("max", true, GA_NO_LIMIT);
    size("", false, 0);
    size("G", false, 0);
    size("4X", false, 0);
    size("4GiBs", false, 0);
    size("-1", false, 0);
    size("1.5", false, 0);
    size("7.9G", true, 8482560409);
    size("0.3k", true, 307);
    size("0.99999999999999999999999999T", true, (1ull << 40) - 1);
    size(" 4 GiB ", true, 4ull << 30);
    size("MAX", true, GA_NO_LIMIT);
    size("1.", false, 0);
    size("4iB", false, 0);
    size("4Gi", false, 0);
    size("4G x", false, 0);
    size("99999999999999999999", false, 0);
    size("18014398509481984K", false, 0);

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

    uint32_t share = 0;
    CHECK(ga_env_share("25%", &share) && share == 250);
    CHECK(ga_env_share("12.5%", &share) && share == 125);
    CHECK(ga_env_share("100%", &share) && share == 1000);
    CHECK(ga_env_share(" 12.50 % ", &share) && share == 125);
    CHECK(ga_env_share("0%", &share) && share == 0);
    CHECK(!ga_env_share("101%", &share) && !ga_env_share("100.1%", &share) &&
          !ga_env_share("12.34%", &share) && !ga_env_share("5", &share));

    struct ga_env env;
    setenv("GPUARB_JOB", "00112233445566778899aabbccddeeff", 1);
    setenv("GPUARB_MEMORY", "12.5%", 1);
    setenv("GPUARB_STREAMS", "0", 1);
    setenv("GPUARB_VIRTUALIZE", "0", 1);
    setenv("GPUARB_SOCKET", "/some/where", 1);
    unsetenv("GPUARB_ON_LOSS");
    ga_env_read(&env);
    CHECK(env.in_job && env.job[1] == 0x11 && env.job[15] == 0xff && env.loss_closed);
    CHECK(env.memory == GA_NO_LIMIT && env.memory_mill == 125 && env.streams == 1);
    CHECK(!env.virtualize && strcmp(env.socket[0], "/some/where") == 0 && !env.socket[1][0]);
    CHECK(!env.wrong);

    setenv("GPUARB_JOB", "0011", 1);
    setenv("GPUARB_MEMORY", "lots", 1);
    setenv("GPUARB_STREAMS", "many", 1);
    unsetenv("GPUARB_VIRTUALIZE");
    unsetenv("GPUARB_SOCKET");
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    ga_env_read(&env);
    CHECK(!env.in_job && !env.loss_closed && env.memory == GA_NO_LIMIT && env.memory_mill == 0);
    CHECK(env.streams == 0 && env.virtualize);
    CHECK(env.wrong && strcmp(env.wrong, "GPUARB_MEMORY") == 0);
    unsetenv("GPUARB_MEMORY");
    unsetenv("GPUARB_STREAMS");
    CHECK(strcmp(env.socket[0], "/run/user/7/gpuarb/gpuarb.sock") == 0);
    CHECK(strcmp(env.socket[1], "/run/gpuarb/gpuarb.sock") == 0);

    arbitration();

    char line[16];
    CHECK(ga_log_format(line, sizeof line, "%u|%d|%x|%s%%", (uint64_t)7, (int64_t)-3, (uint64_t)255,
                        "ab") == 11);
    CHECK(strcmp(line, "7|-3|ff|ab%") == 0);
    CHECK(ga_log_format(line, 5, "%s", "abcdefgh") == 4 && strcmp(line, "abcd") == 0);
    return 0;
}
