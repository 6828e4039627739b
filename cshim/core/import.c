// SPDX-License-Identifier: Apache-2.0
// Keeps the table of imports, under root.imports_lock, and publishes its sums.
#include "core/import.h"

#include "core/publish.h"

// Adds an import to the published sums, or removes it from them.
static void count(struct ga_root *root, const struct ga_entry *e, bool more) {
    ga_publish_import(root, e->device, more ? e->bytes : 0 - e->bytes,
                      e->bytes ? 0 : (more ? 1 : -1));
}

// Memory that is opened twice has the same address both times. An entry of another size at this
// address is another block, which was closed by a call that the library does not see.
void ga_import_note(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_entry e = *entry;
    struct ga_entry old = {0};
    e.tag = 1;
    ga_self_lock(&root->imports_lock);
    if (ga_table_find_key(&root->imports, (struct ga_key){e.key, e.space}, &old) &&
        old.bytes == e.bytes && old.context == e.context && old.tag < UINT16_MAX)
        e.tag = (uint16_t)(old.tag + 1);
    bool put = ga_table_put(&root->imports, &e, &old);
    ga_self_unlock(&root->imports_lock);
    if (!put) // no memory for the entry: publish it as an import of unknown size
        ga_publish_import(root, e.device, 0, 1);
    if (put && e.tag == 1) {
        count(root, &e, true);
        if (old.key)
            count(root, &old, false);
    }
}

bool ga_import_remove(struct ga_root *root, struct ga_key key, struct ga_entry *entry) {
    struct ga_entry rest;
    struct ga_entry old;
    if (atomic_load(&root->imports.most) == 0)
        return false;
    ga_self_lock(&root->imports_lock);
    bool found = ga_table_remove_key(&root->imports, key, entry);
    if (found && entry->tag > 1) {
        rest = *entry;
        rest.tag--;
        ga_table_put(&root->imports, &rest, &old);
    }
    ga_self_unlock(&root->imports_lock);
    return found;
}

void ga_import_finish_remove(struct ga_root *root, const struct ga_entry *entry, bool ended) {
    struct ga_entry old;
    if (ended) {
        if (entry->tag == 1)
            count(root, entry, false);
        return;
    }
    ga_self_lock(&root->imports_lock);
    ga_table_put(&root->imports, entry, &old);
    ga_self_unlock(&root->imports_lock);
}

void ga_import_sweep(struct ga_root *root, uint64_t context) {
    uint64_t bytes[GA_DEVICES] = {0};
    int unknown[GA_DEVICES] = {0};
    struct ga_entry e;
    ga_self_lock(&root->imports_lock);
    struct ga_walk walk = ga_table_walk(&root->imports);
    while (ga_table_remove_next(&walk, context, &e)) {
        bytes[e.device] += e.bytes;
        unknown[e.device] += e.bytes == 0;
    }
    ga_self_unlock(&root->imports_lock);
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (bytes[d] || unknown[d])
            ga_publish_import(root, d, 0 - bytes[d], 0 - unknown[d]);
}
