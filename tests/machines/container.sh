#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# container.sh: run `make demo` and `make test` under several conditions that must make no
# difference: an installed gpuarb with its daemon at /run/gpuarb, a umask that closes all files,
# the checkout's included, to other users, a TMPDIR too long for the path of a socket, and nohup.
# Run it by tools/fresh-root.sh with a PID namespace of its own, because it changes its machine.
set -euo pipefail

tools/setup.sh test
make -s build
make install PREFIX=/usr >/dev/null
make install >/dev/null
cp build/sim/lib*.so.1 /usr/lib
gpuarbd >/tmp/gpuarbd.log 2>&1 &
daemon=$!
until gpuarb ps >/dev/null 2>&1; do sleep 0.1; done

umask 077
git clone --quiet . "$HOME/private"
cd "$HOME/private"
TMPDIR=/tmp/$(printf 'a-long-name-of-a-folder-%.0s' {1..6})
mkdir "$TMPDIR"
export TMPDIR
nohup make demo 2>&1 | cat
status=0
nohup make test 2>&1 | cat || status=$?

# The tests must not have changed the machine's own daemon.
gpuarb ps | sed 1d | grep . && status=1
kill "$daemon"
exit "$status"
