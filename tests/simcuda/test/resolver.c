// SPDX-License-Identifier: Apache-2.0
//
// resolver MAP: checks that cuGetProcAddress and _v2 answer every row of the measured map with the
// library's own addresses, at each version where the answer changes, and at the version before.

#include "testlib.h"

static CUresult (*v1)(const char *, void **, int, uint64_t);
static CUresult (*v2)(const char *, void **, int, uint64_t, int *);
static unsigned checked;

static void wrong(const char *name, unsigned flags, int version, const char *what) {
    fprintf(stderr, "%s flags %u version %d: %s\n", name, flags, version, what);
    exit(1);
}

// answer is a symbol, or !r0,stN.
static void expect(const char *name, unsigned flags, int version, const char *answer) {
    void *untouched = &checked, *got = untouched, *old = untouched;
    int status = -1;
    if (v2(name, &got, version, flags, &status) != 0)
        wrong(name, flags, version, "v2 fails");
    CUresult rc = v1(name, &old, version, flags);
    if (answer[0] == '!') {
        if (got || status != atoi(answer + 6))
            wrong(name, flags, version, "is found, or has another status");
        if (rc != 500 || old != untouched)
            wrong(name, flags, version, "v1 does not say 500");
    } else {
        if (got != driver_symbol(answer) || status != 0)
            wrong(name, flags, version, "is another function");
        if (rc != 0 || old != got)
            wrong(name, flags, version, "v1 says something else");
    }
    got = untouched;
    if (v2(name, &got, version, flags, NULL) != 0 || got == untouched)
        wrong(name, flags, version, "v2 without a status");
    checked++;
}

static void check_row(char *line) {
    char *save = NULL;
    const char *name = strtok_r(line, "\t\n", &save);
    unsigned flags = (unsigned)atoi(strtok_r(NULL, "\t\n", &save));
    const char *answer = "!r0,st2";
    for (char *step; (step = strtok_r(NULL, "\t\n", &save));) {
        int version = atoi(step);
        expect(name, flags, version - 1, answer);
        answer = strchr(step, ':') + 1;
        expect(name, flags, version, answer);
    }
    expect(name, flags, 99999, answer);
    expect(name, flags, -1, answer);
}

static void odd_calls(void) {
    void *p = &checked;
    int status = -1;
    CHECK(v2("", &p, 0, 0, NULL), 0);
    CHECK(p == NULL, 1);
    static const char *const unknown[] = {"cuNoSuchThing", "cuMemAlloc_v2", "cuGetProcAddress_v2",
                                          "cuMemcpyAsync_ptsz"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        CHECK(v2(unknown[i], &p, 12050, 0, &status), 0);
        CHECK(p == NULL && status == 1, 1);
        p = &checked;
        CHECK(v1(unknown[i], &p, 12050, 0), 500);
        CHECK(p == &checked, 1);
    }
    static const uint64_t bad[] = {4, 8, 1ull << 40};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        p = &checked;
        status = -1;
        CHECK(v2("cuInit", &p, 12050, bad[i], &status), 1);
        CHECK(v1("cuInit", &p, 12050, bad[i]), 1);
        CHECK(p == &checked && status == -1, 1);
    }
    CHECK(v2("cuInit", &p, 12050, 3, &status), 0);
    CHECK(p == driver_symbol("cuInit"), 1);
}

int main(int argc, char **argv) {
    char line[4096];
    FILE *f = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (!f)
        return 2;
    *(void **)&v1 = driver_symbol("cuGetProcAddress");
    *(void **)&v2 = driver_symbol("cuGetProcAddress_v2");
    while (fgets(line, sizeof line, f))
        check_row(line);
    fclose(f);
    odd_calls();
    printf("%u\n", checked);
    return 0;
}
