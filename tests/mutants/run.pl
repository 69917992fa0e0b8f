# run.pl WORK MUTANTS [PATTERN...]: plants each mutant in WORK/source, builds WORK/build, runs the
# suite for the variants that it affects, and prints which checks failed.
# run.pl --match MUTANTS: whether each matches the sources of this project once.
use strict;
use warnings;
use File::Basename qw(dirname);
use List::Util qw(any);

my ($work, $list, @patterns) = @ARGV;
$| = 1;

sub read_file { local (@ARGV, $/) = (shift); return scalar <>; }
sub write_file {
  my ($path, $text) = @_;
  open(my $out, '>', $path) or die "$path: $!\n";
  print $out $text;
  close($out) or die "$path: $!\n";
}

# A mutant: "== name", "# what it is and where it was published", "variants: a b", "file: path",
# "-" and "+" lines: the text that is replaced and the text that replaces it.
my @mutants;
for my $line (split /\n/, read_file($list)) {
  if ($line =~ /^== (.*)/) { push @mutants, {name => $1, what => '', old => '', new => ''}; }
  elsif (!@mutants) { next; }
  elsif ($line =~ /^# ?(.*)/) { $mutants[-1]{what} .= ($mutants[-1]{what} ? ' ' : '') . $1; }
  elsif ($line =~ /^(variants|file): (.*)/) { $mutants[-1]{$1} = $2; }
  elsif ($line =~ /^-(.*)/) { $mutants[-1]{old} .= "$1\n"; }
  elsif ($line =~ /^\+(.*)/) { $mutants[-1]{new} .= "$1\n"; }
  elsif ($line ne '') { die "$list: unexpected line \"$line\"\n"; }
}

sub matches {
  my ($text, $old) = @_;
  my $at = index($text, $old);
  return $at >= 0 && index($text, $old, $at + 1) < 0;
}

if ($work eq '--match') {
  my @stale = grep { !matches(read_file(dirname($list) . "/../../$_->{file}"), $_->{old}) } @mutants;
  print "$_->{name}: does not match $_->{file}\n" for @stale;
  exit(@mutants && !@stale ? 0 : 1);
}

my ($caught, $tried) = (0, 0);
for my $mutant (@mutants) {
  next if @patterns && !any { index($mutant->{name}, $_) >= 0 } @patterns;
  ++$tried;
  my $path = "$work/source/$mutant->{file}";
  my $text = read_file($path);
  my $found = '';
  if (!matches($text, $mutant->{old})) {
    $found = 'DOES NOT MATCH THE CODE';
  } else {
    my $broken = $text;
    substr($broken, index($text, $mutant->{old}), length $mutant->{old}) = $mutant->{new};
    write_file($path, $broken);
    if (system("cmake --build '$work/build' --target longhand >'$work/log' 2>&1") != 0) {
      $found = "DOES NOT BUILD, see $work/log";
    } else {
      my %failed;
      for my $variant (split ' ', $mutant->{variants}) {
        for (`'$work/build/longhand' check attention --quiet --variant $variant 2>&1`) {
          ++$failed{$1} if m{^FAILED .* / ([\w-]+): };
        }
        $failed{'it crashed'} = 1 if $? & 127;
      }
      $found = %failed ? join(', ', sort keys %failed) : 'SURVIVES';
      ++$caught if %failed;
    }
    write_file($path, $text);
  }
  print "| $mutant->{name} | $mutant->{what} | $found |\n";
}
# The sources are restored; so is the build.
system("cmake --build '$work/build' --target longhand >'$work/log' 2>&1");
print "$caught of $tried mutants are caught\n";
exit($tried > 0 && $caught == $tried ? 0 : 1);
