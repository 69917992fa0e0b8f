#!/usr/bin/perl
# course.pl [--check] PROGRAMS FOLDER...: writes the outputs and figures on the pages of chapters anew, or checks
# that they are those of the programs. PROGRAMS is build/release/course. On a page
#
#   <!-- output: tensors -->                 is followed by a code block with what tensors.cpp prints,
#   <!-- output: tensors 2 -->               by the second paragraph of it; paragraphs end at empty lines,
#   <!-- figure: error.svg lines n; y … -->  by the figure that course_figure draws of what the chapter's program prints.
#
# Also checked: every ```cpp block is a run of lines of a source of the chapter, or of one that the page links to, or
# several such runs with "..." between them; sources have at most 100 lines; there are three solutions, a figure, and
# the whole output; and the list of chapters has this one.
use strict;
use warnings;

my $check = @ARGV && $ARGV[0] eq '--check' ? shift : '';
my $programs = shift or die "usage: course.pl [--check] PROGRAMS FOLDER...\n";
my $wrong = 0;
sub wrong { print @_, "\n"; $wrong = 1 }
sub slurp { my ($file) = @_; open(my $in, '<', $file) or die "$file: $!\n"; local $/; return scalar <$in> }
sub spill { my ($file, $text) = @_; open(my $out, '>', $file) or die "$file: $!\n"; print $out $text }
# What a command prints, given $input.
sub printed {
  my ($input, @command) = @_;
  my $file = "$programs/input.$$";
  spill($file, $input);
  open(STDIN, '<', $file) or die "$file: $!\n";
  open(my $from, '-|', @command) or die "$command[0]: $!\n";
  local $/;
  my $text = <$from>;
  unlink $file;
  close($from) or die "$command[0] failed:\n$text";
  return $text;
}
# Keeps `now` in the file, or says that it is not there.
sub settle {
  my ($file, $now) = @_;
  my $old = -e $file ? slurp($file) : '';
  return if $old eq $now;
  return spill($file, $now) unless $check;
  spill("$programs/now.$$", $now);
  system('diff', '-u', '--label', $file, '--label', 'made anew', $file, "$programs/now.$$") if -e $file;
  unlink "$programs/now.$$";
  wrong("$file differs from what its programs give: run examples/course/update.sh and look at it");
}

for my $folder (@ARGV) {
  my ($chapter) = $folder =~ m{([^/]+)/?$};
  my ($name) = $chapter =~ /^\d\d_(\w+)$/ or die "$folder: expected a folder such as 01_tensors\n";
  my %output;
  my $output_of = sub { $output{$_[0]} //= printed('', "$programs/$chapter/$_[0]") };
  my $page = my $old = slurp("$folder/README.md");
  my %shown;
  $page =~ s{(<!-- output: (\w+)(?: (\d+))? -->\n```text\n).*?(^```$)}{
    my ($head, $program, $part, $end) = ($1, $2, $3, $4);
    my $text = $output_of->($program);
    my @parts = split /\n\n+/, $text;
    die "$folder: $program prints @{[scalar @parts]} paragraphs\n" if defined $part && $part > @parts;
    $shown{$_} = 1 for defined $part ? $part : 1 .. @parts;
    $text = $parts[$part - 1] =~ s/\n*\z/\n/r if defined $part;
    "$head$text$end"
  }gmse;
  settle("$folder/README.md", $page);
  my @parts = split /\n\n+/, $output_of->($name);
  wrong("$folder/README.md: paragraph $_ of the output of $name is not shown") for grep { !$shown{$_} } 1 .. @parts;

  my $figures = 0;
  while ($page =~ /<!-- figure: (\S+\.svg) (.*?) -->\n(.*)/g) {
    my ($file, $directive, $next) = ($1, $2, $3);
    settle("$folder/$file", printed($output_of->($name), "$programs/course_figure", $directive));
    wrong("$folder/README.md: $file is not shown below its directive") unless $next =~ /^!\[.+\]\(\Q$file\E\)/;
    ++$figures;
  }
  wrong("$folder/README.md has no figure") unless $figures;

  # Lines without indentation, so that what is indented in a function may be quoted without it.
  my $plain = sub { join '', map { s/^\s+//r } grep { /\S/ } split /^/, $_[0] };
  my @sources = sort grep { !/\/exercise_\d\.cpp$/ } glob("$folder/*.cpp");  # exercise_1.cpp is the reader's
  my @linked = grep { -f } map { "$folder/$_" } $page =~ /\]\(([^)\s]+\.(?:cpp|h))\)/g;
  my @texts = map { $plain->(slurp($_)) } @sources, @linked;
  while ($page =~ /^```cpp\n(.*?)^```$/gms) {
    for my $run (split /^\s*\.\.\.\n/m, $1) {
      my $quoted = $plain->($run);
      wrong("$folder/README.md quotes what is in no source:\n$run") unless grep { index("\n$_", "\n$quoted") >= 0 } @texts;
    }
  }
  for my $source (@sources) {
    my $lines = () = slurp($source) =~ /\n/g;
    wrong("$source has $lines lines, of at most 100") if $lines > 100;
    my ($file) = $source =~ m{([^/]+)$};
    wrong("$folder/README.md does not link to $file") unless $page =~ /\]\(\Q$file\E\)/;
  }
  my @names = map { m{([^/]+)\.cpp$} } @sources;
  wrong("$folder: expected $name.cpp and solution_1.cpp to solution_3.cpp, got @names")
    unless "@names" eq join ' ', sort $name, map { "solution_$_" } 1 .. 3;
  wrong("$folder/../README.md does not link to $chapter") unless slurp("$folder/../README.md") =~ /\]\(\Q$chapter\E\//;
}
exit $wrong;
