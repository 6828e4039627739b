// SPDX-License-Identifier: Apache-2.0
// processes: programs in unusual situations that real programs get into. They lose threads, fork,
// execute other programs, close descriptors, restrict themselves, and continue to use the GPU. One
// story a run:
//
//   processes STORY [ARGUMENT…]
//
// A story prints a line for each event, and nothing that differs between runs. After a line "at
// WHERE" it waits for a line on stdin, while the test checks the state. It ends with "end".
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
// Ends the program if a call fails that does not concern the GPU.
#define must(worked, what) ((worked) ? (void)0 : give_up(what))
void give_up(const char *what) __attribute__((noreturn));
// Calls cuInit and makes a context.
void begin(void);

// Number of threads that allocate memory and a stream and free both, again and again.
#define CROWD 4
struct crowd;
// Starts the threads; they run for a number of rounds, or until crowd_stop.
struct crowd *crowd_start(int rounds);
// Waits for all threads, and prints "crowd WHEN: N failures".
void crowd_stop(struct crowd *crowd, const char *when);

// Each thread allocates a block so large that the library must ask the daemon, and keeps it.
void crowd_take(const char *when);
void crowd_give(const char *when);

struct story {
    const char *name;
    int (*tell)(char **arguments);
};
extern const struct story births[];       // processes_birth.c: fork, exec and their like
extern const struct story restrictions[]; // processes_restricted.c: a process that loses rights
extern const struct story threads[];      // processes_threads.c: threads, signals, and ends
extern const struct story stops[];        // processes_stopped.c: a daemon that does not answer

#endif
