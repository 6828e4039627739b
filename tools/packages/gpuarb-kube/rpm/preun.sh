#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# rpm runs this before it removes the files; the argument is the number of versions that stay
# installed. Before it removes the last version, the script stops and disables the services.

if [ "$1" -ne 0 ]; then exit 0; fi
for unit in /usr/lib/systemd/system/gpuarb-*.service; do
    unit=${unit##*/}
    if [ -d /run/systemd/system ]; then systemctl stop "$unit" >/dev/null 2>&1 || true; fi
    systemctl --no-reload disable "$unit" >/dev/null 2>&1 || true
done
exit 0
