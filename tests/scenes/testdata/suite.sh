# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # $scene and the functions are scene_test.go's
#
# A suite of 40 GPU tests runs in each way that docs/admin/ci.md recommends, and passes. Its tests use numba, whose allocator
# keeps freed memory. suite_full.sh runs it ten times in each way, and in the other ways of the page's table once.
#
# Prints a row for each way: seconds of the slowest run, tests that passed in all runs, tests that failed, and the command.
rounds=${rounds:-1}
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
pytest() { /usr/bin/python3 -m pytest -q -p no:cacheprovider "$@"; }
export -f pytest
one() { bash -c "$*" >>log 2>&1 || true; }

# way COMMAND: runs the suite $times times with a shell command that ends in the path of the tests, and prints its row.
way() {
    local slowest=0 began took
    : >log
    for _ in $(seq "$times"); do
        began=$(date +%s%N)
        one "$1"
        took=$((($(date +%s%N) - began) / 100000000))
        slowest=$((took > slowest ? took : slowest))
        nobody_left
    done
    count passed
    count failed
    printf '%d.%d s\t%d passed\t%d failed\t%s\n' $((slowest / 10)) $((slowest % 10)) "$passed" "$failed" "$1"
}

# count WORD: sets the variable WORD to the sum of the numbers before that word in pytest's last lines.
count() { printf -v "$1" %d "$(grep -oE "[0-9]+ $1" log | awk '{ n += $1 } END { print n + 0 }')"; }

# nobody_left: waits until the memory of the last run is free again.
nobody_left() {
    until [ "$(gpuarb devices --json | grep -c '"granted_bytes": 0')" = 1 ]; do sleep 0.02; done
}

# passes COMMAND: runs the suite $rounds times; all tests have to pass each time.
passes() {
    times=$rounds way "$1"
    [ "$passed" = $((40 * rounds)) ] && [ "$failed" = 0 ] || { cat log; tail -n 50 "$scene/log"; exit 1; }
}

passes "gpuarb run --per-process --memory 2G --wait -- bash -c 'pytest -n8'"
passes "seq 0 39 | xargs -P8 -I{} gpuarb run --min 2G --wait -- bash -c 'pytest \"test_gpu.py::test_gpu[{}]\"'"
