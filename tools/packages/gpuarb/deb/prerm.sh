#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# dpkg runs this before it removes gpuarb or unpacks another version. Before a removal it undoes
# what `gpuarb enable` did, because programs would otherwise be told to load a library that is gone.
# Then it stops the daemon. Before an upgrade it does nothing: postinst restarts the daemon later.
set -e

if [ "$1" != remove ]; then exit 0; fi

gpuarb status 2>/dev/null | while read -r kind name _; do
    case $kind in
    all) gpuarb disable --all ;;
    unit | user | group) gpuarb disable "--$kind" "$name" ;;
    esac
done

if [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop gpuarbd.socket gpuarbd.service >/dev/null
fi
