// SPDX-License-Identifier: Apache-2.0
// Reads and runs the commands of a test program. Commands come from its arguments, or from stdin if
// there are none, one in a line or separated by semicolons. Each command prints one line, which
// repeats its first two words: "alloc a ok", or "alloc a err -2" with the interface's own status.
#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A command of the program. It reads its words by script_text and script_number; word 0 is the
// command itself. A missing word, or a word that is not a number, ends the program.
struct script_verb {
    const char *name;
    void (*run)(void);
};

bool script_has(int word);
const char *script_text(int word);
bool script_is(const char *command);
uint64_t script_number(int word); // may end in K, M, G or T

// Returns the object that a word names: size bytes, filled with zeros. Makes it if it does not
// exist and make is set.
void *script_object(int word, size_t size, bool make);

// Ends the program: the command cannot be understood.
__attribute__((noreturn)) void script_misunderstood(void);

// Print the answer: "ok", with a value after it, or "err" and the status if that is not 0.
void script_answer(int status);
__attribute__((format(printf, 2, 3))) void script_value(int status, const char *value, ...);

// Runs all commands.
void script_run(int argc, char **argv, const struct script_verb *verbs, size_t count);

#endif
