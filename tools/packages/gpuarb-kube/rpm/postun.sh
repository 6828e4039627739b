#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# rpm runs this after it has removed the files; the argument is the number of versions that stay installed.

if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
exit 0
