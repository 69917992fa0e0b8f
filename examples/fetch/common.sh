# Shared by the scripts of this folder: fetch, fail.

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# fetch URL FILE SHA256: downloads a file, unless it is there with this hash, and prints its size and its
# SHA-256. Fails if that is another one; without an expected one (""), nothing is compared.
fetch() {
  local url=$1 file=$2 expected=$3 code=0 found
  if [ ! -e "$file" ]; then
    command -v curl >/dev/null || fail "curl is not installed"
    mkdir -p "$(dirname "$file")"
    echo "fetching  $url"
    curl --fail --location --silent --show-error --retry 2 --output "$file.part" "$url" || code=$?
    if [ "$code" -ne 0 ]; then
      rm -f "$file.part"
      fail "cannot download $url (curl exits with $code): without a network, put the file at $file and run this again"
    fi
    mv "$file.part" "$file"
  fi
  found=$(sha256sum "$file" | cut -d ' ' -f 1)
  echo "file      $file"
  echo "size      $(stat -c %s "$file") bytes"
  echo "SHA-256   $found"
  if [ -z "$expected" ]; then
    echo "          not compared: no published hash is known; give one as SHA256=..."
  elif [ "$found" != "$expected" ]; then
    fail "$file: expected SHA-256 $expected; it is another file, or damaged: remove it and run this again"
  fi
}
