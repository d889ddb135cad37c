#!/bin/sh
# The user stays: files of its may be left. So do slot, publication and schema in
# the database, which only "outbox-cdc destroy" removes.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
