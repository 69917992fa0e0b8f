#!/usr/bin/env bash
# tests/packages/run.sh [FOLDER]: builds the Debian packages in build/package/packages, or takes those in
# FOLDER; checks them with lintian, installs them on a bare Debian (debootstrap, chroot), trains with
# the program, builds a program and the example of a plugin with the headers, and removes them again.
# The bare Debian needs root and a mirror; without root that part is skipped, with exit code 77.
#   SUITE=trixie        another release of Debian than that of this machine
#   BARE_DEBIAN=FOLDER  a root made by debootstrap --variant=minbase, which is copied instead of made
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
source=$(readlink -f "$here/../..")
packages=${1:-}
if [ -z "$packages" ]; then
  cd "$source"
  examples/install-packages.sh doxygen libjs-mathjax dpkg-dev file lintian pybind11-dev python3-dev
  echo "== build"
  cmake --workflow --preset package >build.log 2>&1 || { tail -n 50 build.log; exit 1; }
  rm build.log
  packages=$source/build/package/packages
fi
packages=$(readlink -f "$packages")
ls -sh "$packages"/*.deb

echo "== lintian"
if command -v lintian >/dev/null; then
  # Their changelogs close no bug report, because nobody has asked Debian for a package; one package has all
  # the libraries, which have the same version; CPack calls ldconfig besides the trigger.
  LC_ALL=C lintian --allow-root --fail-on error,warning --display-level '>=warning' --suppress-tags \
    initial-upload-closes-no-bugs,package-name-doesnt-match-sonames,maintscript-calls-ldconfig \
    "$packages"/*.deb
else
  echo "skipped: lintian is not installed"
fi

echo "== bare Debian"
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "chroot needs root"
command -v unshare >/dev/null || skip "unshare is not installed"
suite=${SUITE:-$(. /etc/os-release; echo "$VERSION_CODENAME")}
top=$(mktemp -d)
trap 'rm -rf --one-file-system "$top"' EXIT
root=$top/root
if [ -n "${BARE_DEBIAN:-}" ]; then
  cp -a "$BARE_DEBIAN" "$root"
else
  command -v debootstrap >/dev/null || skip "debootstrap is not installed"
  mirror=$(grep -hsi '^URIs:' /etc/apt/sources.list.d/*.sources | awk '{ print $2; exit }' || true)
  debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} >"$top/debootstrap.log" ||
    { tail "$top/debootstrap.log"; exit 1; }
fi
# The network of this machine.
cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
cp -n /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
mkdir "$root/packages"
cp "$packages"/*.deb "$here/in_bare_debian.sh" "$root/packages/"
unshare -m --propagation private bash -c '
  mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"
  exec chroot "$1" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb \
    bash /packages/in_bare_debian.sh' -- "$root"
echo "packages: all checks passed"
