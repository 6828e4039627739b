# SPDX-License-Identifier: Apache-2.0
#
# First file: names that are defined elsewhere. Second: names that driver 555 exports. Each of the
# latter that is not among the former becomes a function that says it is not supported: by way of the
# checks that every function makes (header driver.h), or outright (header cuda_abi.h).
BEGIN {
    print "// Generated from data/exports-555.txt by gen/stubs.awk."
    print "#include \"" header "\"\n"
    answer = header == "driver.h" ? "drv_unsupported(__func__)" : "CUDA_ERROR_NOT_SUPPORTED"
}
NR == FNR { defined_here[$1] = 1; next }
!($1 in defined_here) { print "EXPORT CUresult " $1 "(void) { return " answer "; }" }
