#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-gpu.sh: run the tests with the tag "gpu" against this machine's GPU. Where
# there is none it says so and succeeds; where there is one, a test that cannot
# use it fails, because a driver that is broken must not look like no driver. What was
# measured, and what of the machine is missing for the rest, is shown.
set -euo pipefail

: "${GO:=go}"

# The kernel's word on it: PCI display devices of a vendor whose driver we arbitrate.
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
# A framework is read from the disk, and compiles, for minutes when nothing of it is warm.
export GPUARB_TEST_PATIENCE=${GPUARB_TEST_PATIENCE:-5m}
"$GO" test -tags gpu -skip '^TestDriver$' -count=1 -timeout 60m -json ./tests/gpu/... |
    build/tools/testsum -show 'measured:|not tested:'
