# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2164 # $scene and the functions are scene_test.go's, as is set -e
#
# A suite of 40 GPU tests runs in the ways of the table in docs/admin/ci.md. The tests use numba, whose allocator keeps freed
# memory. $ways says which: once, the recommended ways, one process a test with ten tests; workers and processes, the
# recommended ways with xdist's workers or with a process a test, ten times each; others, the other ways of the table once.
#
# For each way it prints a row: seconds of the slowest run, tests that passed and failed in all runs, the command.
daemon "$scene/log" gpuarbd --mount none --debug
mkdir "$scene/suite"
cd "$scene/suite"
cat >test_gpu.py <<'.'
import time

import numpy
import pytest
from numba import cuda

@pytest.mark.parametrize("number", range(40))
def test_gpu(number):
    for mib in (1000, 1500):
        block = cuda.device_array(mib << 20, dtype=numpy.uint8)
        block[:1000].copy_to_device(numpy.full(1000, number, numpy.uint8))
        time.sleep(0.05)  # the kernels of a test
        assert (block[:1000].copy_to_host() == number).all()
        del block  # numba keeps it until it lacks memory
.
mkdir bin
printf '#!/bin/sh\nexec /usr/bin/python3 -m pytest -q -p no:cacheprovider "$@"\n' >bin/pytest
chmod +x bin/pytest
PATH=$PWD/bin:$PATH

# way TIMES COMMAND: runs a shell command so many times, and prints its row.
way() {
    local slowest=0 began took passed failed
    : >log
    for _ in $(seq "$1"); do
        began=$(date +%s%N)
        bash -c "$2" >>log 2>&1 || true
        took=$((($(date +%s%N) - began) / 100000000))
        slowest=$((took > slowest ? took : slowest))
        until gpuarb devices --json | grep -q '"committed_bytes":0,.*"overhead_bytes":0,'; do sleep 0.02; done
    done
    passed=$(sum passed)
    failed=$(sum failed)
    printf '%3d.%d s %4d passed %4d failed  %s\n' $((slowest / 10)) $((slowest % 10)) "$passed" "$failed" "$2"
}

# sum WORD: adds up the numbers before this word in the last lines of pytest.
sum() { { grep -oE "[0-9]+ $1" log || true; } | awk '{ n += $1 } END { print n + 0 }'; }

# passes TIMES TESTS COMMAND: runs a way in which all tests have to pass each time.
passes() {
    way "$1" "$3"
    if [ "$(sum passed)" != $(($1 * $2)) ] || [ "$(sum failed)" != 0 ]; then
        cat log
        tail -n 100 "$scene/log"
        exit 1
    fi
}

workers="gpuarb run --per-process --memory 2G --wait -- pytest -n8 test_gpu.py"
reserved="gpuarb run --per-process --min 2G --wait -- pytest -n3 test_gpu.py"
each='xargs -P8 -I{} gpuarb run --min 2G --wait -- pytest "test_gpu.py::test_gpu[{}]"'
case $ways in
once)
    passes 1 40 "$workers"
    passes 1 40 "$reserved"
    passes 1 10 "seq 0 9 | $each"
    ;;
workers)
    passes 10 40 "$workers"
    passes 10 40 "$reserved"
    ;;
processes) passes 10 40 "seq 0 39 | $each" ;;
others)
    way 1 "pytest -n1 test_gpu.py"
    way 1 "pytest -n8 test_gpu.py"
    way 1 "gpuarb run --wait -- pytest -n1 test_gpu.py"
    way 1 "gpuarb run --wait=20s -- pytest -n8 test_gpu.py"
    way 1 "gpuarb run --memory 2G --wait=20s -- pytest -n8 test_gpu.py"
    way 1 "gpuarb run --per-process --memory 2G -- pytest -n8 test_gpu.py"
    way 1 "gpuarb run --per-process --memory 2G --wait=20s --refuse-first=false -- pytest -n8 test_gpu.py"
    ;;
esac
