#!/usr/bin/env bash
# What tests/packages/run.sh runs on the bare Debian: /packages has the packages.
set -euo pipefail
cd /packages
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -q --no-install-recommends "$@" >install.log 2>&1 || { tail -n 30 install.log; exit 1; }; }
apt-get update -q >/dev/null
find / -xdev -name '*longhand*' -not -path '/packages/*' -not -path '/proc/*' | sort >before

echo "-- the program and the documentation"
install ./liblonghand0*.deb ./longhand_*.deb ./longhand-doc_*.deb
longhand --version
longhand train /usr/share/longhand/configs/copy.toml --out run --quiet --set train.steps=3 \
  --set data.train_size=64 --set data.validation_size=16 --set data.test_size=16
longhand evaluate run --quiet
longhand report run -o report.html
longhand completion -- eval | grep -q '^evaluate'
(. /usr/share/bash-completion/completions/longhand && complete -p longhand >/dev/null)
for file in man/man1/longhand.1.gz man/man1/longhand-train.1.gz man/man5/longhand.toml.5.gz \
  zsh/vendor-completions/_longhand fish/vendor_completions.d/longhand.fish; do
  test -s "/usr/share/$file" || { echo "$file is missing"; exit 1; }
done
for page in /usr/share/man/man?/longhand*; do zcat "$page" | grep -q '^\.SH NAME'; done
for file in index examples_course_page commands train_options_page configurations attention_variants_performer_page reports/recall; do
  test -s "/usr/share/doc/longhand/html/$file.html" || { echo "$file.html is missing"; exit 1; }
done
# Nothing is fetched from elsewhere, and MathJax is there.
mathjax=$(grep -o 'src="[^"]*MathJax.js"' /usr/share/doc/longhand/html/index.html | cut -d '"' -f 2)
test -s "$mathjax" || { echo "$mathjax is missing"; exit 1; }
if grep -l '<script[^>]*src="https\?:' /usr/share/doc/longhand/html/*.html; then exit 1; fi

echo "-- the Python module"
install ./python3-longhand_*.deb
PYTHONDONTWRITEBYTECODE=1 python3 /usr/share/doc/python3-longhand/check_functions.py >checks
grep -q '^gla: \([0-9]*\) of \1 checks passed' checks || { cat checks; exit 1; }

echo "-- headers"
install ./liblonghand-dev_*.deb g++ cmake make pkg-config
cp -r /usr/share/doc/longhand/examples .
for lesson in examples/*.cpp examples/course/*/*.cpp; do
  [ "$lesson" = examples/course/12_ranks/solution_3.cpp ] && continue  # requires longhand-mpi
  g++ -std=c++20 "$lesson" -o by_pkg_config $(pkg-config --cflags --libs longhand)
  ./by_pkg_config | tail -n 1
done
g++ -std=c++20 examples/plugin/main.cpp -o own_program $(pkg-config --cflags --libs longhand-cli)
./own_program --version | head -n 1
cmake -S examples/plugin -B plugin >cmake.log 2>&1 && cmake --build plugin >>cmake.log 2>&1 ||
  { cat cmake.log; exit 1; }
for program in longhand plugin/own_program; do
  rm -rf run
  "$program" train examples/plugin/config.toml --plugin plugin/example_plugin.so --out run --quiet \
    --set train.steps=3 --set data.train_size=64
done

echo "-- several processes"
install ./longhand-mpi_*.deb
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
zcat /usr/share/man/man1/longhand-mpi.1.gz | grep -q '^\.SH NAME'
mkdir ranks
cat >ranks/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(ranks CXX)
find_package(longhand REQUIRED COMPONENTS mpi)
add_executable(ranks ../examples/course/12_ranks/solution_3.cpp)
target_link_libraries(ranks longhand::longhand longhand::mpi)
END
cmake -S ranks -B ranks/build >cmake.log 2>&1 && cmake --build ranks/build >>cmake.log 2>&1 || { cat cmake.log; exit 1; }
mpirun --oversubscribe -n 2 ranks/build/ranks | tail -n 1
mpirun --oversubscribe -n 2 longhand-mpi train /usr/share/longhand/configs/copy.toml --out ranks/run --quiet \
  --set train.steps=3 train.shards=2 data.train_size=64 data.validation_size=16 data.test_size=16

echo "-- removal"
library=$(dpkg-query -W -f '${Package}\n' | grep '^liblonghand0')
apt-get purge -y -q "$library" longhand longhand-doc longhand-mpi liblonghand-dev python3-longhand >install.log 2>&1 ||
  { tail -n 30 install.log; exit 1; }
find / -xdev -name '*longhand*' -not -path '/packages/*' -not -path '/proc/*' | sort >after
diff before after || { echo "files remain"; exit 1; }
