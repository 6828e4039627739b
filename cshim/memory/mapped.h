// SPDX-License-Identifier: Apache-2.0
// Memory that the program makes without an address. A handle stands for it, and
// the program maps it at addresses. The driver takes it back when every reference to the handle is
// released and every mapping is unmapped. It is charged from when it is made until then. A use is a
// reference to the handle or a mapping; these functions count uses, and the interface
// calls the driver in between.
#ifndef GA_MEMORY_MAPPED_H
#define GA_MEMORY_MAPPED_H

#include "core/admit.h"

struct ga_memory_mapped;

// Takes the bytes of an allocation that is begun (ga_allocation_begin): of a device by its number,
// or of page-locked host memory. Sets *memory to a new record. False: refused, and nothing is
// taken. True: after the driver's answer the caller must call ga_memory_mapped_made or
// ga_memory_mapped_undo.
bool ga_memory_mapped_open(struct ga_allocation *c, struct ga_memory_mapped **memory, bool host,
                           int device);
// Writes down memory that the driver has made, under its handle. False: there is no memory for
// that; the caller must have the driver release it, and call ga_memory_mapped_undo.
bool ga_memory_mapped_made(struct ga_allocation *c, struct ga_memory_mapped *m, uint64_t handle);
// Gives back the bytes of memory that the driver refused to make, or has back. keeps: the program
// has the memory, because the driver did not release it; then the bytes stay charged for good.
void ga_memory_mapped_undo(const struct ga_allocation *c, struct ga_memory_mapped *m, bool keeps);

// Writes down a handle that the program has imported. The memory is another process's, and is not
// charged here, but its uses are counted, because the lease page shows imports. If the handle is
// known, adds a reference to it. device: number of the device that the memory is on; −1: a device
// that is not arbitrated, or host memory.
void ga_memory_mapped_imported(struct ga_root *root, uint64_t handle, int device);

// Takes a reference to a handle out of the table. It is called before the driver is asked to
// release the handle, because the driver may give the handle to other memory at once. The caller
// has the reference's use, and must end it with ga_memory_mapped_drop, or put the reference back
// with ga_memory_mapped_refer if the driver refused. NULL: the handle is not in the table.
struct ga_memory_mapped *ga_memory_mapped_release(struct ga_root *root, uint64_t handle);
// Finds the memory of a handle, and adds a use, which the caller has. NULL: not in the table.
struct ga_memory_mapped *ga_memory_mapped_use(struct ga_root *root, uint64_t handle);
// Finds the memory that is mapped at an address, which may lie inside a mapping, and adds a use,
// which the caller has. NULL: not in the table.
struct ga_memory_mapped *ga_memory_mapped_at(struct ga_root *root, uint64_t address);
// Ends uses. The last one gives the charge back, because the driver has taken the memory back.
void ga_memory_mapped_drop(struct ga_root *root, struct ga_memory_mapped *m, uint64_t uses);
// Turns a use of the caller into a reference to a handle. False: there is no memory for that, and
// the caller still has the use.
bool ga_memory_mapped_refer(struct ga_root *root, uint64_t handle, struct ga_memory_mapped *m);
// Turns a use of the caller into a mapping, at an address, of bytes of the memory from offset on.
// m NULL: the memory is not in the table; the mapping is written down for its length alone, because
// ga_memory_mapped_unmap walks from one mapping to the next.
void ga_memory_mapped_map(struct ga_root *root, struct ga_memory_mapped *m, uint64_t address,
                          uint64_t bytes, uint64_t offset);
// Ends the mappings in a range that the driver has unmapped. The range begins and ends with a
// mapping and has no gaps. It is called after the driver's call, because no other mapping can be
// there yet: the program has reserved the addresses, and must not map there before the call
// returns.
void ga_memory_mapped_unmap(struct ga_root *root, uint64_t address, uint64_t bytes);

#endif
