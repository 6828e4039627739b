// SPDX-License-Identifier: Apache-2.0
// Which other processes belong to the job of this one.
#ifndef GA_JOB_H
#define GA_JOB_H

#include <stdbool.h>

// True for a process that was started with the same GPUARB_JOB. What may not be looked at is not
// of the job: its processes are one user's.
bool ga_job_has(int pid);

#endif
