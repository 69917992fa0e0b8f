#!/bin/sh
# Writes the tables of options in the pages anew: tests/update_pages.sh [PATH/TO/longhand]
# A table stands between <!-- options: TOPIC --> and <!-- end -->, and is the output of
# longhand help --markdown TOPIC. train/options.md is the output of longhand help --markdown. Between
# <!-- map: VARIANT FLAGS --> and <!-- end --> stand the weights of a variant, drawn by longhand analyse attention. Between
# <!-- state: VARIANT FLAGS --> and <!-- end --> stands what the state of a recurrence holds. Between
# <!-- code: FUNCTION... --> and <!-- end --> stand functions of attention/definitions/definitions.cpp.
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
figures=$(mktemp -d)
trap 'rm -rf "$figures"' EXIT
export figures
mkdir -p attention/variants/figures/states
find attention/variants -name '*.md' -exec perl -0777 -pi -e '
  s{(<!-- (map|state): ((\w+)\S*)((?: --\S+)*) -->\n).*?(<!-- end -->)}
   {my ($begin, $kind, $variant, $name, $flags, $end) = ($1, $2, $3, $4, $5, $6);
    my ($of_state, $figure) = $kind eq "state" ? (" --state", "figures/states/$name.svg") : ("", "figures/$name.svg");
    my $command = "analyse attention$of_state --attention $variant$flags --same-keys --correlation 0.9 --norm 6";
    my $out = "$ENV{figures}/${kind}_$name";
    system("\"$ENV{longhand}\" $command --quiet --force -o $out.json >/dev/null && " .
           "\"$ENV{longhand}\" report $out.json --figures $out >/dev/null && " .
           "mv $out/*.svg attention/variants/$figure") == 0 or die "$command failed\n";
    my $text = $kind eq "state"
      ? "What the state holds of these tokens after the last one (rows: channels of the keys, columns: tokens). Forgotten " .
        "tokens have the colour of 0.\n\n![State of $name]($figure)\n\n    longhand $command -o state.json\n"
      : "The weights of 48 random tokens, whose neighbours are alike, for keys that are the queries (rows: queries).\n\n" .
        "![Weights of $name]($figure)\n\n    longhand $command -o map.json\n    longhand report map.json --figures maps\n";
    "$begin$text$end"}gse' {} +
find attention/variants -name '*.md' -exec perl -0777 -pi -e '
  BEGIN {
    open(my $in, "<", "attention/definitions/definitions.cpp") or die "attention/definitions/definitions.cpp: $!\n";
    local $/;
    our $source = <$in>;
  }
  s{(<!-- code: ([\w ]+) -->\n).*?(<!-- end -->)}
   {my ($begin, $names, $end) = ($1, $2, $3);
    my @code = map { $source =~ /^((?:Variable|Tensor) $_\((?:[^\n]*; \}|.*?\n\})\n)/ms ? $1 : die "no definition of $_\n" } split " ", $names;
    "$begin```cpp\n" . join("\n", @code) . "```\n$end"}gse' {} +
"$longhand" help --markdown > train/options.md.new
mv train/options.md.new train/options.md
