// SPDX-License-Identifier: Apache-2.0
// Tells what this process was started with, and starts programs with the same values. spawn.go is
// the only caller. No function allocates, so that each may run between fork and exec.
#pragma once

#include <stdint.h>
#include <sys/types.h>

// gs_inherited returns the signals that this process was started with: those ignored if `ignored`
// is 1, else those blocked. Bit n - 1 stands for signal n.
uint64_t gs_inherited(int ignored);

// gs_parent returns the PID that this process's parent had when this process began, 0 if the parent
// is outside of this PID namespace.
pid_t gs_parent(void);

// A program to start.
struct gs_program {
    const char *path;
    char **arguments;   // ends with NULL
    char **environment; // ends with NULL; the child may write to the strings
    // Where in environment the PID of the program is written; NULL: nowhere. Each place has room
    // for GS_DIGITS characters and a zero byte.
    char *own_pid[2];
    int death_signal; // sent to the program when the calling thread of this process ends
};

enum { GS_DIGITS = 20 };

// gs_start starts a program in a child process. Returns its PID, or -errno if there is none.
pid_t gs_start(const struct gs_program *program);

// gs_become replaces this process by a program, whose death_signal, if it is not 0, is sent when
// the thread that started this process ends. Returns -errno on failure: the signals' dispositions
// are then those of the start, and the caller must end. Returns -ESRCH if death_signal is given
// and the parent has ended already.
int gs_become(const struct gs_program *program);
