#!/bin/sh
# $1 is "remove" (dpkg) or 0 (rpm) where the package goes, and something else
# where another version of it comes.
set -e
case "$1" in
  remove | 0)
    if [ -d /run/systemd/system ]; then
      systemctl disable --now outbox-cdc.service || true
    fi
    ;;
esac
