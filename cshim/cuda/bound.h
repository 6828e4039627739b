// SPDX-License-Identifier: Apache-2.0
// Memory of cuMemCreate that is mapped where no address leads: into tiles of an array that was
// made without memory (sparse, or with its mapping deferred), and into a multicast object. The
// driver keeps it for as long as it is mapped there, released or not, and so does its charge.
//
// What an array is given it is given in stream order: memory that nothing else keeps comes back
// once the stream has passed its unmapping. Pool memory that is bound to a multicast object by its
// address is not followed: it is its pool's, and charged while that holds it.
#ifndef GA_CUDA_BOUND_H
#define GA_CUDA_BOUND_H

#include "core/root.h"
#include "cuda/driver.h"
#include "cuda/vmm.h"

// An array, or a multicast object, and what is mapped there.
struct ga_cuda_bound;

// One that memory can be mapped into, by its key in root.blocks, and by the context that it ends
// with (0: none). whole: memory is mapped to all of it, or none, whatever part is named. epoch: as
// of ga_cuda_context_check.
void ga_cuda_bound_begin(struct ga_root *root, struct ga_key key, uint64_t context, bool whole,
                         uint64_t epoch);
// Takes one out, as it is about to end. NULL: none is known. Then one of these two.
struct ga_cuda_bound *ga_cuda_bound_take(struct ga_root *root, struct ga_key key);
void ga_cuda_bound_end(struct ga_root *root, struct ga_cuda_bound *bound);
void ga_cuda_bound_put_back(struct ga_root *root, struct ga_cuda_bound *bound, uint64_t epoch);
// The context with a serial number has ended.
void ga_cuda_bound_sweep(struct ga_root *root, uint64_t serial);

// effective is the stream that is meant, where stream is what the program passed.
ga_result ga_cuda_bound_map(GA_FN_cuMemMapArrayAsync *real, ga_stream effective,
                            struct ga_cu_array_map *list, unsigned int count, ga_stream stream);

// Memory that is bound to a multicast object, on its way: open, then the driver, then settle. keep
// finds the memory, by its handle or its address. The object is kept meanwhile, so that it does not
// end in between.
struct ga_cuda_binding {
    struct ga_root *root;
    struct ga_cuda_vmm_memory *object, *memory; // NULL: not known
};
#define GA_CUDA_BOUND_WHERE_IT_IS (-1) // no device is named
void ga_cuda_bound_open(struct ga_cuda_binding *b, ga_memory object, ga_cuda_vmm_keeper *keep,
                        uint64_t memory);
ga_result ga_cuda_bound_settle(const struct ga_cuda_binding *b, ga_result result,
                               ga_cu_device device, size_t offset, size_t bytes);
ga_result ga_cuda_multicast_unbind(GA_FN_cuMulticastUnbind *real, ga_memory object,
                                   ga_cu_device device, size_t offset, size_t bytes);

#endif
