#!/usr/bin/env bash
# tinyshakespeare.sh [FOLDER]: fetches 1.1 MB of Shakespeare's plays for the task text_lm. URL=... names another source,
# SHA256=... another hash.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/common.sh"
folder=${1:-data/tinyshakespeare}
fetch "${URL:-https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt}" \
  "$folder/input.txt" "${SHA256:-86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed}"
echo "use it    --set data.task=text_lm data.path=$folder/input.txt"
