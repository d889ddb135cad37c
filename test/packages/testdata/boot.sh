#!/bin/sh
# A copy of this machine that is thrown away: its root below an overlay in
# memory, and systemd as the first process, in namespaces of its own. The network
# is this machine's. Prints "machine PID"; everything ends with this script.
# $1: an empty folder; $2: a new folder among the cgroups.
set -e
if [ "$3" != inside ]; then
  mkdir "$2"
  echo $$ >"$2/cgroup.procs"
  exec unshare --mount --propagation private --pid --fork --kill-child --cgroup --ipc sh "$0" "$1" "$2" inside
fi
read -r pid rest </proc/self/stat # outside's /proc: the number out there
root=$1/root
mount -t tmpfs tmpfs "$1"
mkdir "$1/changed" "$1/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changed,workdir=$1/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then # not tried yet: the machines so far had version 1
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
  mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
  mkdir "$root/sys/fs/cgroup/systemd"
  mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
fi
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  : >"$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
echo "machine $pid"
# Not by chroot alone: the kernel makes no user namespace for who is in one.
cd "$root"
mkdir outside
pivot_root . outside
umount -l outside
# What this machine starts by itself belongs to later targets, and stays away.
exec chroot . env -i container=other PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --unit=basic.target
