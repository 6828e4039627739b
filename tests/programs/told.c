// SPDX-License-Identifier: Apache-2.0
#include "told.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS 8
#define NAMES 256

static struct {
    char text[32];
    void *object;
} names[NAMES];
static size_t n_names;

static char *word[WORDS];
static int words;

void told_misunderstood(void) {
    printf("what? %s\n", words ? word[0] : "");
    fflush(stdout);
    _exit(2);
}

bool told_has(int i) {
    return i < words;
}

const char *told_text(int i) {
    if (!told_has(i))
        told_misunderstood();
    return word[i];
}

bool told_is(const char *command) {
    return strcmp(told_text(0), command) == 0;
}

uint64_t told_number(int i) {
    char *end;
    uint64_t value = strtoull(told_text(i), &end, 0);
    static const char units[] = "KMGT";
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (*end && !unit)
        told_misunderstood();
    return unit ? value << 10 * (unit - units + 1) : value;
}

void *told_named(int i, size_t size, bool make) {
    for (size_t n = 0; n < n_names; n++)
        if (strcmp(names[n].text, told_text(i)) == 0)
            return names[n].object;
    if (!make || n_names == NAMES || strlen(told_text(i)) >= sizeof names[0].text)
        told_misunderstood();
    strcpy(names[n_names].text, told_text(i));
    names[n_names].object = calloc(1, size);
    if (!names[n_names].object)
        abort();
    return names[n_names++].object;
}

static void answer(int status, const char *ok, const char *value) {
    printf("%s%s%s ", word[0], words > 1 ? " " : "", words > 1 ? word[1] : "");
    if (status == 0)
        printf("%s%s\n", ok, value);
    else
        printf("err %d\n", status);
    fflush(stdout);
}

void told_answer(int status) {
    answer(status, "ok", "");
}

void told_value(int status, const char *value, ...) {
    char text[512];
    va_list values;
    va_start(values, value);
    vsnprintf(text, sizeof text, value, values);
    va_end(values);
    answer(status, "ok ", text);
}

static void run(char *line, const struct told_verb *verbs, size_t count) {
    char *rest = NULL;
    words = 0;
    for (char *w = strtok_r(line, " \t\r\n", &rest); w && words < WORDS;
         w = strtok_r(NULL, " \t\r\n", &rest))
        word[words++] = w;
    if (words == 0)
        return;
    for (size_t i = 0; i < count; i++)
        if (strcmp(verbs[i].name, word[0]) == 0) {
            verbs[i].run();
            return;
        }
    told_misunderstood();
}

static void run_line(char *line, const struct told_verb *verbs, size_t count) {
    char *rest = NULL;
    for (char *one = strtok_r(line, ";", &rest); one; one = strtok_r(NULL, ";", &rest))
        run(one, verbs, count);
}

void told_run(int argc, char **argv, const struct told_verb *verbs, size_t count) {
    static char line[4096];
    for (int i = 1; i < argc; i++)
        run_line(argv[i], verbs, count);
    while (argc == 1 && fgets(line, sizeof line, stdin))
        run_line(line, verbs, count);
}
