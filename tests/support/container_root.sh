#!/bin/sh
# Runs a command as a container would: as another user, in a root of its own that is read-only, with volumes.
#
#   unshare --mount --propagation private sh container_root.sh ROOT USER FOLDER [BIND...] -- COMMAND...
#
# ROOT: an empty folder. FOLDER: where the command starts. BIND: ro:FROM:TO or rw:FROM:TO. Called by
# tests/support/acted_pod.py, as root, in a mount namespace that ends with the command.
set -eu
inside=$PATH
PATH=$PATH:/usr/sbin:/sbin
root=$1 user=$2 folder=$3
shift 3

mount -t tmpfs -o mode=755,size=16m container "$root"
for name in bin sbin lib lib32 lib64 usr; do
	if [ -L "/$name" ]; then
		ln -s "$(readlink "/$name")" "$root/$name"
	elif [ -d "/$name" ]; then
		mkdir "$root/$name"
		mount --bind "/$name" "$root/$name"
		mount -o remount,bind,ro "$root/$name"
	fi
done
mkdir "$root/etc" "$root/proc" "$root/dev"
for name in ld.so.cache hosts nsswitch.conf passwd group resolv.conf; do
	if [ -e "/etc/$name" ]; then cp -L "/etc/$name" "$root/etc/$name"; fi
done
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do
	kind=${1%%:*} rest=${1#*:}
	from=${rest%%:*} to=$root${rest#*:}
	mkdir -p "$to"
	mount --bind "$from" "$to"
	if [ "$kind" = ro ]; then mount -o remount,bind,ro "$to"; fi
	shift
done
shift
mount -o remount,ro "$root"

exec chroot "$root" setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs \
	--inh-caps=-all --bounding-set=-all env -C "$folder" PATH="$inside" "$@"
