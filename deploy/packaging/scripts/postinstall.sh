#!/bin/sh
# A first installation starts nothing: the service needs its configuration
# first. An upgrade goes on with the new program where the old one ran; a clean
# stop makes no duplicates.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
  systemctl try-restart outbox-cdc.service || true
fi
