// SPDX-License-Identifier: Apache-2.0
// Memory that a program makes without an address. A handle stands for it, and the program maps it
// at addresses. The driver frees it when every reference to the handle is released and every
// mapping is unmapped; it is charged until then. A use is a reference to the handle or a mapping.
// These functions count uses, and the interface calls the driver in between. Spin lock:
// ga_memory_mappings.lock.
#ifndef GA_MEMORY_MAPPED_H
#define GA_MEMORY_MAPPED_H

#include "core/admit.h"

struct ga_memory_mapped;

// Acquires the bytes of an allocation that was begun (ga_allocation_begin), from a device by its
// number or from the limit of page-locked host memory. Sets *memory to a new record. False:
// refused; nothing is acquired. True: after the driver's call the caller must call
// ga_memory_mapped_made or ga_memory_mapped_undo.
bool ga_memory_mapped_open(struct ga_allocation *c, struct ga_memory_mapped **memory, bool host,
                           int device);
// Stores memory that the driver has made, under its handle. False: no memory for the record; the
// caller must make the driver release the memory, and call ga_memory_mapped_undo.
bool ga_memory_mapped_made(struct ga_allocation *c, struct ga_memory_mapped *m, uint64_t handle);
// Releases the bytes of memory that the driver refused to make, or has released. keeps: the driver
// did not release the memory, so the program has it, and its bytes stay charged until the process
// ends.
void ga_memory_mapped_undo(const struct ga_allocation *c, struct ga_memory_mapped *m, bool keeps);

// Stores a handle that the program has imported. The memory is another process's, and is not
// charged here. Its uses are counted, because the lease page publishes imports. If the handle is
// known, adds a reference. device: number of the memory's device; −1: a device that is not
// arbitrated, or host memory.
void ga_memory_mapped_imported(struct ga_root *root, uint64_t handle, int device);

// Removes a reference to a handle from the table. Called before the driver releases the handle,
// because the driver may reuse the handle at once. The caller gets the reference's use. It must end
// the use with ga_memory_mapped_drop, or restore the reference with ga_memory_mapped_refer if the
// driver refused. NULL: the handle is not in the table.
struct ga_memory_mapped *ga_memory_mapped_release(struct ga_root *root, uint64_t handle);
// Finds the memory of a handle, and adds a use for the caller. NULL: not in the table.
struct ga_memory_mapped *ga_memory_mapped_use(struct ga_root *root, uint64_t handle);
// Finds the memory that is mapped at an address, which may lie inside a mapping, and adds a use for
// the caller. NULL: not in the table.
struct ga_memory_mapped *ga_memory_mapped_at(struct ga_root *root, uint64_t address);
// Ends uses. The last one releases the charge, because the driver has freed the memory.
void ga_memory_mapped_drop(struct ga_root *root, struct ga_memory_mapped *m, uint64_t uses);
// Turns a use of the caller into a reference to a handle. False: no memory for that, and the caller
// still has the use.
bool ga_memory_mapped_refer(struct ga_root *root, uint64_t handle, struct ga_memory_mapped *m);
// Turns a use of the caller into a mapping of the memory, from offset on. m NULL: the memory is not
// in the table. The mapping is stored only for its length, because ga_memory_mapped_unmap walks
// from one mapping to the next.
void ga_memory_mapped_map(struct ga_root *root, struct ga_memory_mapped *m, uint64_t address,
                          uint64_t bytes, uint64_t offset);
// Ends the mappings in a range that the driver has unmapped. The range begins and ends with a
// mapping and has no gaps. It is called after the driver's call, because no other mapping can be
// there yet: the program has reserved the addresses, and must not map there before the call
// returns.
void ga_memory_mapped_unmap(struct ga_root *root, uint64_t address, uint64_t bytes);

#endif
