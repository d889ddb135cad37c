#!/bin/sh
# Runs before the files are unpacked, since some of them belong to the group.
set -e
if ! getent group outbox-cdc >/dev/null; then
  groupadd --system outbox-cdc
fi
if ! getent passwd outbox-cdc >/dev/null; then
  useradd --system --gid outbox-cdc --no-create-home --home-dir /nonexistent \
    --shell /usr/sbin/nologin --comment "outbox-cdc service" outbox-cdc
fi
