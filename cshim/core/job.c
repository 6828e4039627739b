// SPDX-License-Identifier: Apache-2.0
#include "core/job.h"

#include "core/environ.h"
#include "core/log.h"
#include "core/os.h"

static const char variable[] = "GPUARB_JOB=";

// Follows an environment byte by byte, looking for one whole variable.
struct search {
    const char *token;
    size_t at; // so much of it has matched
    bool lost; // this variable is another one
    bool found;
};

static char expected(const struct search *s) {
    size_t n = sizeof variable - 1;
    return s->at < n ? variable[s->at] : s->token[s->at - n]; // NUL at the end
}

static void follow(struct search *s, char c) {
    if (!s->lost && c == expected(s)) {
        s->found |= c == '\0' && s->at >= sizeof variable - 1;
        s->at++;
    } else {
        s->lost = true;
    }
    if (c == '\0') {
        s->at = 0;
        s->lost = false;
    }
}

bool ga_job_has(int pid) {
    char path[64];
    char text[1024];
    struct search s = {.token = ga_environ_get("GPUARB_JOB")};
    if (!s.token || !*s.token)
        return false;
    ga_log_format(path, sizeof path, "/proc/%u/environ", (uint64_t)pid);
    int fd = ga_os_open_read(path);
    if (fd < 0)
        return false;
    for (long n; !s.found && (n = ga_os_read(fd, text, sizeof text)) > 0;)
        for (long i = 0; i < n && !s.found; i++)
            follow(&s, text[i]);
    ga_os_close(fd);
    return s.found;
}
