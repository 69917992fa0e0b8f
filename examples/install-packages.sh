#!/usr/bin/env bash
# install-packages.sh [PACKAGE...]: installs the packages of Debian 12 or 13 that are required to build
# Longhand, and those given, if any is missing. Requires root (or sudo) only in that case.
set -euo pipefail
packages=(g++ cmake ninja-build pkg-config libopenblas-pthread-dev liblapacke-dev libtbb-dev
  libhdf5-dev zlib1g-dev libzip-dev libboost-dev catch2 librapidcheck-dev libcli11-dev libtomlplusplus-dev
  nlohmann-json3-dev libfmt-dev librandom123-dev libxxhash-dev libopenmpi-dev openmpi-bin "$@")
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "== install: ${missing[*]}"
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q >/dev/null
$sudo apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
