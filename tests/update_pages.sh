#!/bin/sh
# Writes the tables of options in the pages anew: tests/update_pages.sh [PATH/TO/longhand]
# A table stands between <!-- options: TOPIC --> and <!-- end -->, and is the output of
# longhand help --markdown TOPIC. train/options.md is the output of longhand help --markdown.
set -eu
longhand=$(realpath "${1:-build/release/longhand}")
cd "$(dirname "$0")/.."
export longhand
find attention data train -name '*.md' -exec perl -0777 -pi -e '
  s{(<!-- options: (\S+) -->\n).*?(<!-- end -->)}
   {my ($begin, $topic, $end) = ($1, $2, $3);
    my $table = qx("$ENV{longhand}" help --markdown "$topic");
    die "longhand help --markdown $topic failed\n" if $?;
    "$begin$table$end"}gse' {} +
"$longhand" help --markdown > train/options.md.new
mv train/options.md.new train/options.md
