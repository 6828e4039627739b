#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# rpm runs this before it removes the files; the argument is the number of versions that stay
# installed. Before it removes the last version, the script undoes what `gpuarb enable` did, because
# programs would otherwise be told to load a library that is gone. Then it stops the daemon.
set -e

if [ "$1" -ne 0 ]; then exit 0; fi

gpuarb status 2>/dev/null | while read -r kind name _; do
    case $kind in
    all) gpuarb disable --all ;;
    unit | user | group) gpuarb disable "--$kind" "$name" ;;
    esac
done

if [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now gpuarbd.socket gpuarbd.service >/dev/null 2>&1
else
    systemctl --no-reload disable gpuarbd.socket gpuarbd.service >/dev/null 2>&1 || true
fi
