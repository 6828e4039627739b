#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-cudart.sh FOLDER DRIVERS: hold what the vendor's own CUDA runtime gets under the shim against
# what it gets without. Every release of both that Debian's archive has in non-free is fetched, into
# FOLDER/RELEASE/libcudart.so.N and DRIVERS/RELEASE/libcuda.so.1; what lies there already is taken
# too. No device is needed, and nothing is installed.
set -euo pipefail

: "${GO:=go}"
here=$(dirname "$0")
runtimes=$("$here/fetch-nonfree.sh" "${1:?usage: test-cudart.sh FOLDER DRIVERS}" libcudart libcudart11.0 libcudart12)
drivers=$("$here/fetch-nonfree.sh" "${2:?a folder for drivers}" libcuda libcuda1)
CUDART_FOLDERS=${runtimes//$'\n'/:} LIBCUDA_FOLDERS=${drivers//$'\n'/:} \
    "$GO" test -count 1 -tags cudart -v -run TestRealRuntime ./cshim/entrypoints
