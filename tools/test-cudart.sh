#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-cudart.sh FOLDER DRIVERS: compares what the vendor's CUDA runtime gets with the library and
# without it. It fetches every release of both from non-free of Debian's archive, into
# FOLDER/RELEASE/libcudart.so.N and DRIVERS/RELEASE/libcuda.so.1. Libraries that are there already
# are tested too. No device is needed, and nothing is installed.
set -euo pipefail

: "${GO:=go}"
here=$(dirname "$0")
runtimes=$("$here/fetch-nonfree.sh" "${1:?usage: test-cudart.sh FOLDER DRIVERS}" libcudart libcudart11.0 libcudart12)
drivers=$("$here/fetch-nonfree.sh" "${2:?a folder for drivers}" libcuda libcuda1)
CUDART_FOLDERS=${runtimes//$'\n'/:} LIBCUDA_FOLDERS=${drivers//$'\n'/:} \
    "$GO" test -count 1 -tags cudart -v -run TestRealRuntime ./cshim/entrypoints
