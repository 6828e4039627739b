#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-gpu.sh: runs the tests with the tag "gpu" on this machine's GPU. Without a GPU it says so and
# succeeds. With a GPU, a test that cannot use it fails, because a broken driver must not look like
# a missing driver. The script shows what was measured, and what the machine lacks for other tests.
set -euo pipefail

: "${GO:=go}"

# Lists PCI display devices of vendors whose drivers gpuarb supports, as the kernel knows them.
gpus() {
    local dev
    for dev in /sys/bus/pci/devices/*; do
        case $(cat "$dev/class" "$dev/vendor" 2>/dev/null | tr '\n' ' ') in
        0x03*' 0x10de '*) basename "$dev" ;;
        esac
    done
    compgen -G '/dev/nvidia[0-9]*' || true
}

found=$(gpus)
if [ -z "$found" ]; then
    echo "test-gpu: this machine has no NVIDIA GPU, nothing was tested"
    exit 0
fi
echo "test-gpu: found" "$(tr '\n' ' ' <<<"$found")"
# A framework may read the disk and compile for minutes when it starts for the first time.
export GPUARB_TEST_PATIENCE=${GPUARB_TEST_PATIENCE:-5m}
"$GO" test -tags gpu -skip '^TestDriver$' -count=1 -timeout 60m -json ./tests/gpu/... |
    build/tools/testsum -show 'measured:|not tested:'
