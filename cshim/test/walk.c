// SPDX-License-Identifier: Apache-2.0
// walk HOW FILE: prints what look-ups of a driver's functions return. FILE has a line "versions
// N…", then names. For each name and flags it prints the answers of both cuGetProcAddress at each
// version where they change. It also prints what dlsym and dlvsym find in the driver's handle:
//
//   v2 NAME FLAGS VERSION RESULT STATUS WHAT        (v1 without STATUS)
//   dlsym NAME WHAT
//   dlvsym NAME WHAT
//
// WHAT is a symbol and its library ("shim" or "driver"), "-" for NULL, or "untouched". HOW says how
// cuGetProcAddress itself is found: dlsym, dlvsym, or gpa (by itself, before any other look-up).
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int gpa_v1(const char *, void **, int, uint64_t);
typedef int gpa_v2(const char *, void **, int, uint64_t, int *);

enum { VERSIONS = 512, LINE = 8192, ANSWER = 400 };

static void *driver;
static gpa_v1 *v1;
static gpa_v2 *v2;
static int versions[VERSIONS];
static size_t version_count;
static char untouched;

static const char *library(const char *path) {
    if (strstr(path, "libgpuarb"))
        return "shim";
    return strstr(path, "cuda") ? "driver" : path;
}

static void describe(char *text, size_t size, void *p) {
    Dl_info info;
    if (!p)
        snprintf(text, size, "-");
    else if (p == &untouched)
        snprintf(text, size, "untouched");
    else if (!dladdr(p, &info) || !info.dli_fname)
        snprintf(text, size, "nowhere");
    else
        snprintf(text, size, "%s:%s", library(info.dli_fname),
                 info.dli_sname && info.dli_saddr == p ? info.dli_sname : "inside");
}

// Describes a pointer. Consecutive pointers are mostly equal, so it keeps the last description.
static const char *what(void *p) {
    static char text[ANSWER] = "-";
    static void *last;
    if (p != last)
        describe(text, sizeof text, p);
    last = p;
    return text;
}

static void ask(int abi, const char *name, int version, uint64_t flags, char *answer) {
    void *p = &untouched, *q = &untouched;
    int status = 77;
    int result = abi == 1 ? v1(name, &p, version, flags) : v2(name, &p, version, flags, &status);
    if (abi == 1)
        snprintf(answer, ANSWER, "%d %s", result, what(p));
    else
        snprintf(answer, ANSWER, "%d %d %s", result, status, what(p));
    // Without a status, as most callers ask, the answer must be the same.
    if (abi == 2 && (v2(name, &q, version, flags, NULL) != result || p != q))
        printf("v2 %s %d %d: another answer without a status\n", name, (int)flags, version);
}

// Prints the answer at each version where it changes, and at 2000, the first version that every
// driver knows.
static void walk_versions(int abi, const char *name, uint64_t flags) {
    char answer[ANSWER], last[ANSWER] = "";
    for (size_t i = 0; i < version_count; i++) {
        ask(abi, name, versions[i], flags, answer);
        if (strcmp(answer, last) != 0 || versions[i] == 2000)
            printf("v%d %s %" PRIu64 " %d %s\n", abi, name, flags, versions[i], answer);
        memcpy(last, answer, sizeof last);
    }
}

static void walk(const char *name) {
    static const uint64_t flags[] = {0, 1, 2, 3, 4, UINT64_C(1) << 40};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        walk_versions(1, name, flags[i]);
        if (v2)
            walk_versions(2, name, flags[i]);
    }
    printf("dlsym %s %s\n", name, what(dlsym(driver, name)));
    printf("dlvsym %s %s\n", name, what(dlvsym(driver, name, "libcuda.so.1")));
}

static int find_resolver(const char *how) {
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return printf("no driver: %s\n", dlerror()), 1;
    if (strcmp(how, "dlvsym") == 0) {
        v1 = (gpa_v1 *)dlvsym(driver, "cuGetProcAddress", "libcuda.so.1");
        v2 = (gpa_v2 *)dlvsym(driver, "cuGetProcAddress_v2", "libcuda.so.1");
    }
    if (!v1)
        v1 = (gpa_v1 *)dlsym(driver, "cuGetProcAddress");
    if (!v2 && strcmp(how, "gpa") != 0)
        v2 = (gpa_v2 *)dlsym(driver, "cuGetProcAddress_v2");
    if (strcmp(how, "gpa") == 0) {
        void *p = NULL;
        if (v1("cuGetProcAddress", &p, 12000, 0) != 0)
            return printf("no v2\n"), 1;
        v2 = (gpa_v2 *)p;
        if (v2("cuGetProcAddress", &p, 11030, 0, NULL) != 0)
            return printf("no v1\n"), 1;
        v1 = (gpa_v1 *)p;
    }
    return v1 ? 0 : (printf("no resolver\n"), 1); // the second resolver came with CUDA 12
}

int main(int argc, char **argv) {
    static char line[LINE];
    FILE *f = argc == 3 ? fopen(argv[2], "re") : NULL;
    if (!f || !fgets(line, sizeof line, f) || find_resolver(argv[1]) != 0)
        return 2;
    for (char *word = strtok(line + strlen("versions "), " \n"); word && version_count < VERSIONS;
         word = strtok(NULL, " \n"))
        versions[version_count++] = (int)strtol(word, NULL, 10);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        walk(line);
    }
    return fclose(f) == 0 && fflush(stdout) == 0 ? 0 : 1;
}
