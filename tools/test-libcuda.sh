#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-libcuda.sh FOLDER: hold the shim's resolver against the vendor's own libcuda.so.1, every
# release that Debian's archive has in non-free and every one that lies below FOLDER already
# (FOLDER/NAME/libcuda.so.1). It loads without a device. Nothing is installed.
set -euo pipefail

: "${GO:=go}"
found=$("$(dirname "$0")/fetch-nonfree.sh" "${1:?usage: test-libcuda.sh FOLDER}" libcuda libcuda1 nvidia-tesla-470-libcuda1)
LIBCUDA_FOLDERS=${found//$'\n'/:} "$GO" test -count 1 -tags libcuda -v -run TestRealLibrary ./cshim/entrypoints
