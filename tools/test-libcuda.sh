#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-libcuda.sh FOLDER: tests the library's resolver with the vendor's own libcuda.so.1. It tests
# every release in non-free of Debian's archive, and every one that is below FOLDER already
# (FOLDER/NAME/libcuda.so.1). The library loads without a device. Nothing is installed.
set -euo pipefail

: "${GO:=go}"
found=$("$(dirname "$0")/fetch-nonfree.sh" "${1:?usage: test-libcuda.sh FOLDER}" libcuda libcuda1 nvidia-tesla-470-libcuda1)
LIBCUDA_FOLDERS=${found//$'\n'/:} "$GO" test -count 1 -tags libcuda -v -run TestRealLibrary ./cshim/entrypoints
