// SPDX-License-Identifier: Apache-2.0
// What a program needs that does as it is told: a command a line or between semicolons, from its
// arguments, or from stdin where there are none. Each command is answered by one line, which
// repeats its first two words: "alloc a ok", or "alloc a err -2" with the interface's own status.
#ifndef TOLD_H
#define TOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A command of the program. Its words, the command's own at 0, are read by told_text and
// told_number; a word that is missing or no number ends the program.
struct told_verb {
    const char *name;
    void (*run)(void);
};

bool told_has(int word);
const char *told_text(int word);
bool told_is(const char *command);
uint64_t told_number(int word); // with K, M, G or T behind it

// What the program calls by the name that stands at a word: size zeroed bytes of the program's,
// made where there is none yet and make is set.
void *told_named(int word, size_t size, bool make);

// Ends the program: the command cannot be understood.
__attribute__((noreturn)) void told_misunderstood(void);

// Answers the command: "ok", with a value behind it, or "err" and the status where that is not 0.
void told_answer(int status);
__attribute__((format(printf, 2, 3))) void told_value(int status, const char *value, ...);

// Does the commands to their end.
void told_run(int argc, char **argv, const struct told_verb *verbs, size_t count);

#endif
