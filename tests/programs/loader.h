// SPDX-License-Identifier: Apache-2.0
// Functions of loaderlib.c that loader.c calls.
#ifndef LOADER_H
#define LOADER_H

typedef void *lookup_function(void *handle, const char *name);
typedef void *lookup_version_function(void *handle, const char *name, const char *version);

lookup_function lookup1, lookup2, lookup3;
lookup_version_function lookup_version1, lookup_version2, lookup_version3;

#endif
