// SPDX-License-Identifier: Apache-2.0
// Stands in for NVIDIA's OpenCL driver, for programs that search for CUDA's driver: it exports one
// of CUDA's functions, and no others.
int cuGetExportTable(const void **table, const void *id);
int cuGetExportTable(const void **table, const void *id) {
    (void)table;
    (void)id;
    return 4242;
}
