#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# dpkg runs this before it removes gpuarb-kube or unpacks another version. Before a removal it stops the
# services. Before an upgrade it does nothing: postinst restarts the services later.
set -e

if [ "$1" != remove ] || [ ! -d /run/systemd/system ]; then exit 0; fi
for unit in /usr/lib/systemd/system/gpuarb-*.service; do
    deb-systemd-invoke stop "${unit##*/}" >/dev/null
done
