# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # the functions are scene_test.go's and suite.sh's
#
# Runs the suite of suite.sh ten times in each way that docs/admin/ci.md recommends, and once in each other way of its table.
rounds=10
# shellcheck source=/dev/null
. "$(dirname "$0")/suite.sh"
times=1
way "pytest -n1"
way "pytest -n8"
way "gpuarb run --wait -- bash -c 'pytest -n1'"
way "gpuarb run --wait -- bash -c 'pytest -n8'"
way "gpuarb run --per-process --memory 2G -- bash -c 'pytest -n8'"
way "gpuarb run --per-process --memory 2G --wait --refuse-first=false -- bash -c 'pytest -n8'"
way "gpuarb run --per-process --min 2G --wait -- bash -c 'pytest -n3'"
way "gpuarb run --per-process --min 2G --wait -- bash -c 'pytest -n8'"
