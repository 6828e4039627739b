#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# rpm runs this after it has removed the files; the argument is the number of versions that stay
# installed. After the removal of the last version, a changed configuration and the history stay.

if [ "$1" -ne 0 ]; then exit 0; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
rm -f /run/cdi/gpuarb.json     # it names programs that are gone
rmdir /run/cdi 2>/dev/null || true
rm -rf /run/gpuarb             # it has the state file, which no daemon will read any more
rmdir /gpu 2>/dev/null || true # fails if something is mounted there or in it
exit 0
