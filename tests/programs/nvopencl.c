// SPDX-License-Identifier: Apache-2.0
// As NVIDIA's driver of OpenCL looks to who searches for CUDA's: it exports one of CUDA's
// functions, and none of the others.
int cuGetExportTable(const void **table, const void *id);
int cuGetExportTable(const void **table, const void *id) {
    (void)table;
    (void)id;
    return 4242;
}
