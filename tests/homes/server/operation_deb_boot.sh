#!/bin/sh
# systemd as process 1 on an overlay of /, in namespaces of its own, to run operation_deb_inside.py; all of it is gone when
# that ends. For operation_deb.sh, as root.
#
#     tests/homes/server/operation_deb_boot.sh COPY HOST ROOT PACKAGES
#
# COPY is an empty folder for mounts, HOST one for what the inside tells, ROOT the source, PACKAGES where *.deb are.
set -eu
mkdir -p "$1"
exec unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup sh -eu -c '
copy=$1 host=$2 root=$3 packages=$4
mount --make-rprivate /
mount -t tmpfs tmpfs "$copy"
mkdir "$copy/upper" "$copy/work" "$copy/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$copy/upper,workdir=$copy/work" "$copy/root"
new=$copy/root
mount -t proc proc "$new/proc"
mount -t sysfs sysfs "$new/sys"
mkdir -p "$new/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$new/sys/fs/cgroup"
mount -t tmpfs tmpfs "$new/dev"
for name in null zero full random urandom tty; do
    : >"$new/dev/$name"
    mount --bind "/dev/$name" "$new/dev/$name"
done
mkdir "$new/dev/shm" "$new/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$new/dev/pts"
ln -s pts/ptmx "$new/dev/ptmx"
ln -s /proc/self/fd "$new/dev/fd"
mount -t tmpfs tmpfs "$new/dev/shm"
mount -t tmpfs tmpfs "$new/run"
mkdir -p "$new/run/weir-test/host" "$new/run/weir-test/packages" "$new/run/weir-test/source"
mount --bind "$host" "$new/run/weir-test/host"
mount --bind "$packages" "$new/run/weir-test/packages"
mount --bind "$root" "$new/run/weir-test/source"
: >"$new/etc/machine-id"
rm -f "$new/usr/sbin/policy-rc.d"
find "$new/etc/systemd/system" -name "*.wants" -prune -exec rm -rf {} +
cat >"$new/etc/systemd/system/test.target" <<END
[Unit]
Requires=test.service
END
cat >"$new/etc/systemd/system/test.service" <<END
[Unit]
DefaultDependencies=no
Requires=systemd-journald.service
After=systemd-journald.service
[Service]
Type=oneshot
Environment=PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ExecStart=$(command -v python3) /run/weir-test/source/tests/homes/server/operation_deb_inside.py
StandardOutput=append:/run/weir-test/host/out
StandardError=inherit
ExecStopPost=/bin/systemctl --force --force poweroff
END
cd "$new"
mkdir -p run/weir-test/old
pivot_root . run/weir-test/old
umount -l /run/weir-test/old
mount --make-rshared /
exec env -i container=weir-test PATH="$PATH" /lib/systemd/systemd --system --unit=test.target --log-target=journal \
    --log-level=notice --show-status=no
' sh "$@"
