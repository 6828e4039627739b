#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh BUILD: the C tests of the shim. Each program runs in both sanitizer builds; then what the
# library itself must be like is checked.
set -euo pipefail
build=$1
tests=$build/cshim-test

for kind in asan tsan; do
    echo "-- $kind"
    tools/limit.sh 300 "$tests/$kind/table_test" 60000
    tools/limit.sh 300 "$tests/$kind/credit_test"
    tools/limit.sh 300 "$tests/$kind/env_test" accounting/testdata/sizes.tsv
    tools/limit.sh 300 "$tests/$kind/stress" 4 20000
    tools/limit.sh 300 "$tests/$kind/wait_test" "$tests/peer"
    tools/limit.sh 300 "$tests/$kind/threads_test"
    for _ in 1 2 3 4 5; do
        tools/limit.sh 300 "$tests/$kind/threads_test" "$tests/peer"
    done
    tools/limit.sh 300 "$tests/$kind/session_stress" "$tests/peer" 24 300
    tools/limit.sh 300 "$tests/$kind/session_stress" "$tests/peer" 64 100 1 wait
    tools/limit.sh 300 "$tests/$kind/async_stress" "$tests/peer" 4 300 3
    tools/limit.sh 300 "$tests/$kind/races_test" "$tests/peer"
done

echo "-- a primary context that lives on"
tools/limit.sh 300 "$tests/asan/primary_test"

echo "-- pools, and what is freed out of sight"
tools/limit.sh 300 "$tests/asan/pools_test" "$tests/peer"

echo "-- what there is no memory to record"
tools/limit.sh 300 "$tests/asan/unrecorded_test" "$tests/peer"

echo "-- a context that ends during an allocation"
tools/limit.sh 300 "$tests/teardown_test" "$tests/peer"

echo "-- what fuzzing found worth keeping"
for target in table resolve; do
    "$tests/fuzz/${target}_fuzz" cshim/test/fuzz/corpus/$target/* 2>"$tests/fuzz/$target.log" ||
        { cat "$tests/fuzz/$target.log"; exit 1; }
done

echo "-- symbols"
# Nothing newer than glibc 2.31, and libc alone.
newest=$(objdump -T "$build/libgpuarb.so" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
if [ "$(printf '%s\nGLIBC_2.31\n' "$newest" | sort -V | tail -n 1)" != GLIBC_2.31 ]; then
    echo "needs $newest"
    exit 1
fi
needed=$(objdump -p "$build/libgpuarb.so" | awk '$1 == "NEEDED" { print $2 }')
if [ "$needed" != libc.so.6 ]; then
    echo "needs the libraries: $needed"
    exit 1
fi
# What is exported is what the tables list, with dlsym and dlvsym, and what the loaders of OpenCL and Vulkan look up of a layer.
diff <(nm -D --defined-only "$build/libgpuarb.so" | awk '{ print $3 }' | sort) \
    <({ sed -n 's/^GA_HOOK(\([A-Za-z0-9_]*\),.*/\1/p' cshim/*/hooks.def; printf 'dlsym\ndlvsym\nclGetLayerInfo\nclInitLayer\nvkNegotiateLoaderLayerInterfaceVersion\n'; } | sort)
# Nothing of it runs in a program that never calls it, so that it can change nothing there.
if objdump -p "$build/libgpuarb.so" | grep -E '\b(INIT|FINI|PREINIT)'; then
    echo "runs code when it is loaded"
    exit 1
fi
# No call of what is forbidden in a stranger's process.
if nm -D --undefined-only "$build/libgpuarb.so" | sed 's/@.*//' | grep -wE 'malloc|calloc|realloc|free|printf|fprintf|abort|exit|dlsym|dlopen|atexit'; then
    echo "imports what it must not use"
    exit 1
fi
cshim/test/entrypoints.sh
echo ok
