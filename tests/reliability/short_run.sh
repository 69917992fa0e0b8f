# Sourced by creation_kill.sh and injected_errors.sh with the path of longhand: a short run in a temporary
# folder, in which it goes on. Sets `longhand`; `config`; `train`, the command that makes ./run; ./whole,
# an undisturbed run; `calls`, the system calls on files; ./trace.txt, those of one run; and
# `count`, how many of each there are. Needs strace.
longhand=$(readlink -f "${1:?expected the path of longhand}")
config=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../cli/tiny.toml")
command -v strace >/dev/null || { echo "$(basename "$0") needs strace" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
train=("$longhand" train "$config" --quiet --threads 1 --set train.steps=4 train.eval_every=2
  train.checkpoint_every=1 train.keep_every=2 --out run)

"${train[@]}" >/dev/null
mv run whole
calls=(openat mkdir flock write fsync close link unlink rename)
strace -f -o trace.txt -e "trace=$(IFS=,; echo "${calls[*]}")" "${train[@]}" >/dev/null
declare -A count
for call in "${calls[@]}"; do count[$call]=$(grep -c " $call(" trace.txt || true); done
