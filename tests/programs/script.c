// SPDX-License-Identifier: Apache-2.0
// Splits commands into words, and keeps the objects that they name (script.h).
#include "script.h"

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

void script_misunderstood(void) {
    printf("what? %s\n", words ? word[0] : "");
    fflush(stdout);
    _exit(2);
}

bool script_has(int i) {
    return i < words;
}

const char *script_text(int i) {
    if (!script_has(i))
        script_misunderstood();
    return word[i];
}

bool script_is(const char *command) {
    return strcmp(script_text(0), command) == 0;
}

uint64_t script_number(int i) {
    char *end;
    uint64_t value = strtoull(script_text(i), &end, 0);
    static const char units[] = "KMGT";
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (*end && !unit)
        script_misunderstood();
    return unit ? value << 10 * (unit - units + 1) : value;
}

void *script_object(int i, size_t size, bool make) {
    for (size_t n = 0; n < n_names; n++)
        if (strcmp(names[n].text, script_text(i)) == 0)
            return names[n].object;
    if (!make || n_names == NAMES || strlen(script_text(i)) >= sizeof names[0].text)
        script_misunderstood();
    strcpy(names[n_names].text, script_text(i));
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

void script_answer(int status) {
    answer(status, "ok", "");
}

void script_value(int status, const char *value, ...) {
    char text[512];
    va_list values;
    va_start(values, value);
    vsnprintf(text, sizeof text, value, values);
    va_end(values);
    answer(status, "ok ", text);
}

static void run(char *line, const struct script_verb *verbs, size_t count) {
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
    script_misunderstood();
}

static void run_line(char *line, const struct script_verb *verbs, size_t count) {
    char *rest = NULL;
    for (char *one = strtok_r(line, ";", &rest); one; one = strtok_r(NULL, ";", &rest))
        run(one, verbs, count);
}

void script_run(int argc, char **argv, const struct script_verb *verbs, size_t count) {
    static char line[4096];
    for (int i = 1; i < argc; i++)
        run_line(argv[i], verbs, count);
    while (argc == 1 && fgets(line, sizeof line, stdin))
        run_line(line, verbs, count);
}
