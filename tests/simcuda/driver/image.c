// SPDX-License-Identifier: Apache-2.0
//
// Reading of module images.

#include "module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char title[] = "simcuda module 1\n";

// Reports whether data is an image for a real driver, which this driver refuses: ELF, a fat binary,
// PTX.
static bool is_real(const char *data) {
    static const char fat[4] = {0x50, (char)0xed, 0x55, (char)0xba};
    return !memcmp(data, "\177ELF", 4) || !memcmp(data, fat, 4) || !strncmp(data, "//", 2) ||
           !strncmp(data, ".version", 8);
}

static bool read_line(char *line, struct image *out) {
    char *save = NULL, *what = strtok_r(line, " ", &save);
    char *name = strtok_r(NULL, " ", &save), *size = strtok_r(NULL, " ", &save);
    if (!what || !name)
        return false;
    if (!strcmp(what, "code"))
        return !size && sim_parse_size(name, &out->code);
    if (!size || strlen(name) >= MODULE_NAME)
        return false;
    if (!strcmp(what, "global") && out->globals < MODULE_NAMES) {
        struct image_global *g = &out->global[out->globals++];
        strcpy(g->name, name);
        return sim_parse_size(size, &g->bytes) && g->bytes > 0;
    }
    if (!strcmp(what, "kernel") && out->kernels < MODULE_NAMES) {
        struct image_kernel *k = &out->kernel[out->kernels++];
        strcpy(k->name, name);
        return sim_parse_size(size, &k->local);
    }
    return false;
}

CUresult image_read(const void *data, struct image *out) {
    char copy[2048], *save = NULL;
    const char *text = data;
    memset(out, 0, sizeof *out);
    if (is_real(text))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (strncmp(text, title, sizeof title - 1) != 0 || strlen(text) >= sizeof copy)
        return CUDA_ERROR_INVALID_IMAGE;
    strcpy(copy, text + sizeof title - 1);
    for (char *l = strtok_r(copy, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
        if (!read_line(l, out))
            return CUDA_ERROR_INVALID_IMAGE;
    return CUDA_SUCCESS;
}

CUresult image_file(const char *path, struct image *out) {
    char text[2048] = "";
    FILE *f = fopen(path, "r");
    if (!f)
        return CUDA_ERROR_FILE_NOT_FOUND;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    return image_read(text, out);
}
