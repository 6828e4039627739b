// SPDX-License-Identifier: Apache-2.0
// Memory without an address: a handle stands for it, it is mapped at addresses, and it is given
// back after its last handle is released and its last mapping is gone. It is charged from its
// making to then. The interface calls the driver between the functions below, which count its uses.
#ifndef GA_MEMORY_MAPPED_H
#define GA_MEMORY_MAPPED_H

#include "core/admit.h"

struct ga_memory_mapped;

// Takes the bytes of a claim that is begun: of a device by its number, or of page-locked host
// memory. False: refused, and nothing was taken. True: one of the next two follows.
bool ga_memory_mapped_open(struct ga_claim *c, struct ga_memory_mapped **memory, bool host,
                           int device);
// The driver has made it: puts it into the tables. False: there is no memory for that.
bool ga_memory_mapped_made(struct ga_claim *c, struct ga_memory_mapped *m, uint64_t handle);
// The driver has not made it, or has it back.
void ga_memory_mapped_undo(const struct ga_claim *c, struct ga_memory_mapped *m);

// The driver has given out a handle of another process's memory, which is not charged here. Its
// uses are counted all the same; a handle that is known has one reference more. device: the number
// of the device that the memory is on; −1: of none that is arbitrated.
void ga_memory_mapped_imported(struct ga_root *root, uint64_t handle, int device);

// Takes a reference of a handle out of the table, before the driver is asked to end it, because the
// driver may give the handle out again. The memory keeps the use: ga_memory_mapped_leave ends it,
// or ga_memory_mapped_refer puts the reference back. NULL: the handle is none of ours.
struct ga_memory_mapped *ga_memory_mapped_release(struct ga_root *root, uint64_t handle);
// Finds the memory of a handle, or what is mapped at an address, which need not be the beginning of
// a mapping; and counts a use of it. NULL: it is none of ours.
struct ga_memory_mapped *ga_memory_mapped_use(struct ga_root *root, uint64_t handle);
struct ga_memory_mapped *ga_memory_mapped_at(struct ga_root *root, uint64_t address);
// Ends uses. After the last one the driver has given the memory back, and so is its charge.
void ga_memory_mapped_leave(struct ga_root *root, struct ga_memory_mapped *m, uint64_t uses);
// The use becomes a reference by a handle. False: there is no memory for that, and the use stays.
bool ga_memory_mapped_refer(struct ga_root *root, uint64_t handle, struct ga_memory_mapped *m);
// The use becomes a mapping of bytes of the memory, from offset on, at an address. m NULL: the
// memory is none of ours; the mapping is remembered for its length, because one call may unmap
// several.
void ga_memory_mapped_map(struct ga_root *root, struct ga_memory_mapped *m, uint64_t address,
                          uint64_t bytes, uint64_t offset);
// A range of whole mappings, next to each other, is unmapped. The program has the addresses to
// itself, so that no other mapping comes there before this is called.
void ga_memory_mapped_unmap(struct ga_root *root, uint64_t address, uint64_t bytes);

#endif
