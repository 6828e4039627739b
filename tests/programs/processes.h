// SPDX-License-Identifier: Apache-2.0
// processes: programs that do to themselves what real ones do: they lose threads, fork, become
// others, close descriptors, lock themselves in, and go on using the GPU. One story a run:
//
//   processes STORY [ARGUMENT…]
//
// A story prints what happens to it, a line each, and nothing that differs from run to run. After a
// line "at WHERE" it waits for a line on stdin: somebody looks then. It ends with "end".
#ifndef PROCESSES_H
#define PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cudriver.h"

#define MIB ((size_t)1 << 20)

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Prints "at WHERE" and waits for a line.
void at(const char *where);
// Ends the program when something that is no matter of the GPU does not work.
#define must(worked, what) ((worked) ? (void)0 : give_up(what))
void give_up(const char *what) __attribute__((noreturn));
// cuInit and a context.
void begin(void);

// Some threads, each of which asks for memory and a stream and gives both back, again and again.
#define CROWD 4
struct crowd;
// As many rounds as said, or until crowd_stop.
struct crowd *crowd_start(int rounds);
// Waits for all and prints "crowd WHEN: N failures".
void crowd_stop(struct crowd *crowd, const char *when);

// Each thread takes one block, so large that the daemon has to be asked, and keeps it.
void crowd_take(const char *when);
void crowd_give(const char *when);

struct story {
    const char *name;
    int (*tell)(char **arguments);
};
extern const struct story births[];  // processes_birth.c: fork, exec and their like
extern const struct story walls[];   // processes_walls.c: what a process may not do any more
extern const struct story threads[]; // processes_threads.c: threads, signals, and ends
extern const struct story stops[];   // processes_stopped.c: a daemon that does not answer

#endif
