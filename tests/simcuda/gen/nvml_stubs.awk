# SPDX-License-Identifier: Apache-2.0
#
# First file: names that the simulated NVML defines. Second: names that a program may look up. Each of
# the latter that is not among the former says that it is not supported.
BEGIN {
    print "// Generated from data/nvml-exports.txt by gen/nvml_stubs.awk."
    print "#include \"nvml.h\"\n"
}
NR == FNR { defined_here[$1] = 1; next }
!($1 in defined_here) {
    print "EXPORT nvmlReturn_t " $1 "(void) {"
    print "    return nvml_state() ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNINITIALIZED;"
    print "}"
}
