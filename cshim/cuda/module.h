// SPDX-License-Identifier: Apache-2.0
// Memory that no call names, as far as a call shows it: modules and libraries, which say nowhere
// how much they take, and the heaps and buffers of a context, which do.
//
// A load is measured (cuda/measure.h), and what it took is charged before the program has it;
// beyond the budget it is undone and refused. Where it would have to wait, it is undone, waited
// for, and done again. What is loaded through private tables, or later than its load, the daemon
// finds.
#ifndef GA_CUDA_MODULE_H
#define GA_CUDA_MODULE_H

#include "cuda/claim.h"
#include "cuda/measure.h"

ga_result ga_cuda_limit_set(GA_FN_cuCtxSetLimit *real, int limit, size_t value);

enum ga_cuda_module_kind { GA_CUDA_MODULE = 3, GA_CUDA_LIBRARY = 4 };

// One load: begin, then the driver, which puts the handle where at says, then settle.
struct ga_cuda_load {
    struct ga_claim c;
    struct ga_cuda_measure measure;
    enum ga_cuda_module_kind kind;
    void *handle;
    void **out; // the program's
    void *at;   // a pointer to a handle
};
void ga_cuda_load_begin(struct ga_cuda_load *l, enum ga_cuda_module_kind kind, void *out);
// True: the driver is to do it once more, and settle_again follows. It was undone, and its bytes
// have been waited for.
bool ga_cuda_load_settle(struct ga_cuda_load *l, ga_result *result);
ga_result ga_cuda_load_settle_again(struct ga_cuda_load *l, ga_result result);

// The reverse: give, then the driver, then given. False: nothing is charged for it.
bool ga_cuda_module_give(struct ga_claim *c, void *handle, enum ga_cuda_module_kind kind);
void ga_cuda_module_given(const struct ga_claim *c, ga_result result);

#endif
