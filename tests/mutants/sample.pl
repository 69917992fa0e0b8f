# sample.pl WORK N SEED FOLDER...: plants N mechanical mistakes, sampled with SEED, in the sources of the folders,
# all in one build, and runs for each the tests that reach it, until one of them fails.
#
# A mistake is a line of code changed by one rule below. Each changed line holds both forms and asks at run time
# which one to run (longhand_mutant), so that one build has all mutants; a line that does not compile with both is
# replaced by another. A first run of every test writes which mutants it reaches.
use strict;
use warnings;
use Digest::MD5 qw(md5_hex);
use File::Path qw(make_path remove_tree);
use List::Util qw(min);
use Time::HiRes qw(time);

my ($work, $n, $seed, @folders) = @ARGV;
$| = 1;
my ($source, $build) = ("$work/source", "$work/sampled");

sub read_file { local (@ARGV, $/) = (shift); my $text = <>; return defined $text ? $text : ''; }
sub write_file {
  my ($path, $text) = @_;
  open(my $out, '>', $path) or die "$path: $!\n";
  print $out $text;
  close($out) or die "$path: $!\n";
}

# The rules: what each does to an expression; nothing if it does not apply.
my @rules = (
  ['< to <=', sub { $_[0] =~ s/ < (?!<)/ <= / }],
  ['<= to <', sub { $_[0] =~ s/ <= / < / }],
  ['> to >=', sub { $_[0] =~ s/ > (?!>)/ >= / }],
  ['>= to >', sub { $_[0] =~ s/ >= / > / }],
  ['== to !=', sub { $_[0] =~ s/ == / != / }],
  ['!= to ==', sub { $_[0] =~ s/ != / == / }],
  ['&& to ||', sub { $_[0] =~ s/ && / || / }],
  ['|| to &&', sub { $_[0] =~ s/ \|\| / && / }],
  ['+ to -', sub { $_[0] =~ s/ \+ (?!")/ - / }],
  ['- to +', sub { $_[0] =~ s/ - / + / }],
  ['* to /', sub { $_[0] =~ s/ \* / \/ / }],
  ['/ to *', sub { $_[0] =~ s/ \/ / * / }],
  ['+= to -=', sub { $_[0] =~ s/ \+= / -= / }],
  ['+= to =', sub { $_[0] =~ s/ \+= / = / }],
  ['-= to +=', sub { $_[0] =~ s/ -= / += / }],
  ['1 to 2', sub { $_[0] =~ s/(?<![\w.'"])1(?![\w.'"])/2/ }],
  ['0 to 1', sub { $_[0] =~ s/(?<![\w.'"])0(?![\w.'"])/1/ }],
  ['min to max', sub { $_[0] =~ s/std::min\b/std::max/ }],
  ['max to min', sub { $_[0] =~ s/std::max\b/std::min/ }],
  ['negated', sub { $_[0] =~ s/(?<=[(,] )-(?=\w)// || $_[0] =~ s/\(-(?=\w)/(/ }],
  ['true to false', sub { $_[0] =~ s/\btrue\b/false/ }],
  ['false to true', sub { $_[0] =~ s/\bfalse\b/true/ }],
);

# The forms of a line that can hold both: the text before, the expression, the text after, as a function of the
# number of the mutant and the changed expression.
sub with_both {
  my ($line, $k, $rule) = @_;
  my $change = sub { my $text = shift; my $before = $text; $rule->($text); return $text ne $before ? $text : undef; };
  if ($line =~ /^(\s*(?:\} else )?if \()(.*)(\)(?: \{| return[^;]*;| continue;| break;)?)$/ && balanced($2)) {
    my ($a, $e, $b) = ($1, $2, $3);
    return if $e =~ /;|\bconst\b|\bauto\b/;
    my $m = $change->($e);
    return defined $m ? "${a}longhand_mutant($k) ? ($m) : ($e)$b" : undef;
  }
  if ($line =~ /^(\s*)return (.+);$/ && $2 !~ /^\{|^\[/ && balanced($2)) {
    my ($a, $e) = ($1, $2);
    my $m = $change->($e);
    return defined $m ? "${a}{ if (longhand_mutant($k)) return $m; return $e; }" : undef;
  }
  if ($line =~ /^(\s*)((?:const )?(?:int64_t|size_t|double|float|bool|T|auto) \w+ = )(.+);$/ && balanced($3)) {
    my ($a, $d, $e) = ($1, $2, $3);
    return if $e =~ /^\[|^\{/;
    my $m = $change->($e);
    return defined $m ? "$a${d}longhand_mutant($k) ? ($m) : ($e);" : undef;
  }
  if ($line =~ /^(\s*for \([^;]*; )([^;]+)(; .*)$/) {
    my ($a, $e, $b) = ($1, $2, $3);
    my $m = $change->($e);
    return defined $m ? "${a}longhand_mutant($k) ? ($m) : ($e)$b" : undef;
  }
  if ($line =~ /^(\s*)((?:\+\+|--)?[\w.>\[\]()-]+(?:->|\.)?[\w.\[\]>()-]*(?: [-+*\/]?= |\().*;)$/ && balanced($2)) {
    my ($a, $e) = ($1, $2);
    return if $e =~ /^(?:return|using|static_assert|case|check|else|const|throw|delete|namespace|for|if|while|do)\b/;
    my $m = $change->($e);
    return defined $m ? "${a}{ if (longhand_mutant($k)) { $m } else { $e } }" : undef;
  }
  return;
}
# The same for a statement that is dropped.
sub with_dropped {
  my ($line, $k) = @_;
  return unless $line =~ /^(\s*)((?:\+\+|--)?[\w.>\[\]-]+(?: [-+*\/|]?= |(?:\.|->)?\w*\().*;)$/ && balanced($2);
  my ($a, $e) = ($1, $2);
  return if $e =~ /^(?:return|using|static_assert|case|check|else|const|throw|delete|namespace|for|if|while|do|auto)\b/;
  return "${a}if (!longhand_mutant($k)) { $e }";
}
sub balanced {
  my $depth = 0;
  for (split //, shift) { $depth += $_ eq '(' ? 1 : $_ eq ')' ? -1 : 0; return 0 if $depth < 0; }
  return $depth == 0;
}

# Candidates: [file, line number, rule], in an order that changes of other lines do not change. A line begins a
# statement if the one before it ends one.
my (@candidates, %order);
for my $folder (@folders) {
  my @files = -f "$source/$folder" ? ($folder) : split /\n/, `cd '$source' && find '$folder' -name '*.cpp' | sort`;
  for my $file (@files) {
    next if $file =~ m{mpi|/simd|parallel\.cpp$};
    my @lines = split /\n/, read_file("$source/$file");
    my $previous = ';';
    my %seen;
    for my $i (0 .. $#lines) {
      my $line = $lines[$i];
      my $begins = $previous =~ /[;{}]\s*$|^\s*(?:public|private):$/;
      if ($line =~ /\S/ && $line !~ m{^\s*//|^\s*#}) { $previous = $line =~ s{\s*//.*}{}r; }
      next unless $begins && $line =~ /^\s+\S/ && $line !~ /"|constexpr|template|operator/;
      my $place = "$seed $file " . $seen{$line}++ . " $line";
      for my $r (-1 .. $#rules) {
        next unless defined($r < 0 ? with_dropped($line, 0) : with_both($line, 0, $rules[$r][1]));
        push @candidates, [$file, $i, $r];
        $order{$candidates[-1]} = md5_hex(($r < 0 ? 'dropped' : $rules[$r][0]) . " $place");
      }
    }
  }
}
@candidates = sort { $order{$a} cmp $order{$b} } @candidates;
print scalar(@candidates), " possible mutants in @folders\n";

# Plants a mutant in each of N lines; those that do not compile are replaced.
my (%planted, %taken, %refused);
my $number = 0;
sub plant_more {
  while (keys %planted < $n && @candidates) {
    my $c = shift @candidates;
    next if $taken{"$c->[0]:$c->[1]"}++;
    $planted{++$number} = {file => $c->[0], line => $c->[1], rule => $c->[2]};
  }
}
my %original;
sub write_sources {
  my %by_file;
  push @{$by_file{$planted{$_}{file}}}, $_ for keys %planted;
  for my $file (keys %original) { $by_file{$file} //= []; }
  for my $file (keys %by_file) {
    $original{$file} //= read_file("$source/$file");
    my @lines = split /\n/, $original{$file}, -1;
    for my $k (@{$by_file{$file}}) {
      my $m = $planted{$k};
      $m->{text} = $lines[$m->{line}];
      $lines[$m->{line}] = $m->{rule} < 0 ? with_dropped($m->{text}, $k)
                                          : with_both($m->{text}, $k, $rules[$m->{rule}][1]);
    }
    my $text = join("\n", @lines);
    write_file("$source/$file", $text) if read_file("$source/$file") ne $text;
  }
}
END { for my $file (keys %original) { write_file("$source/$file", $original{$file}); } }
$SIG{INT} = $SIG{TERM} = sub { exit 130 };
# The tests of the lowest of the folders' layers and of all above it.
my @layers = qw(core autograd nn attention data train golden cli reliability);
my %level = map { $layers[$_] => $_ } 0 .. $#layers;
my $lowest = min(map { $level{(split m{/})[0]} // die "$_: expected a folder of core, autograd, nn, attention, data or train\n" } @folders);
my @programs = map { "test_$_" } @layers[$lowest .. $#layers];
for my $round (1 .. 12) {
  plant_more();
  write_sources();
  print "== build, round $round: ", scalar(keys %planted), " mutants\n";
  my $status = system("ninja -k 0 -C '$build' @programs >'$work/log' 2>&1");
  last if $status == 0;
  my $removed = 0;
  for (split /\n/, read_file("$work/log")) {
    next unless m{([\w/.-]+\.cpp):(\d+):\d+: error};
    my ($file, $line) = ($1, $2);
    for my $k (keys %planted) {
      next unless $file =~ /\Q$planted{$k}{file}\E$/ && abs($planted{$k}{line} + 1 - $line) <= 0;
      delete $planted{$k};
      ++$removed;
    }
  }
  die "the build fails for another reason: see $work/log\n" unless $removed;
}

# Runs one test in a folder of its own.
sub run_test {
  my ($program, $pattern, $limit) = @_;
  my $folder = "$work/run$$";
  remove_tree($folder);
  make_path($folder);
  local $ENV{TMPDIR} = $folder;
  my $pid = fork();
  if ($pid == 0) {
    chdir $folder;
    open(STDOUT, '>', '/dev/null');
    open(STDERR, '>', '/dev/null');
    exec('sh', '-c', 'ulimit -v 8000000; exec timeout -k 1 "$0" "$@"', $limit, "$build/tests/$program", $pattern);
  }
  waitpid($pid, 0);
  my $status = $?;
  remove_tree($folder);
  return $status;
}
# The results of a function for each job, run by as many processes as there are cores.
sub in_parallel {
  my ($jobs, $function) = @_;
  pipe(my $in, my $out);
  my $cores = `nproc` + 0;
  my @workers;
  for my $w (1 .. $cores) {
    my $pid = fork();
    if ($pid == 0) {
      %original = ();  # the parent restores the sources
      close($out);
      open(my $results, '>', "$work/results$w");
      while (sysread($in, my $job, 8)) { print $results $job + 0, "\t", $function->($jobs->[$job]), "\n"; }
      close($results);
      exit 0;
    }
    push @workers, $pid;
  }
  close($in);
  syswrite($out, sprintf('%8d', $_)) for 0 .. $#$jobs;
  close($out);
  my @results;
  for my $w (1 .. $cores) {
    waitpid($workers[$w - 1], 0);
    for (split /\n/, read_file("$work/results$w")) { /^(\d+)\t(.*)$/ and $results[$1] = $2; }
    unlink "$work/results$w";
  }
  return @results;
}

# Which mutants each test reaches, and how long it runs.
my (%tests_of, %seconds, @tests);
for my $program (@programs) {
  push @tests, map { [$program, s/([,\[\]\\])/\\$1/gr] } grep { /\S/ } split /\n/, `'$build/tests/$program' --list-test-names-only`;
}
print "== trace ", scalar(@tests), " tests\n";
my @traces = in_parallel(\@tests, sub {
  my ($program, $pattern) = @{$_[0]};
  my $trace = "$work/trace$$";
  unlink $trace;
  local $ENV{MUTANT_TRACE} = $trace;
  my $begin = time;
  my $status = run_test($program, $pattern, 300);
  my %reached = map { $_ => 1 } -e $trace ? split /\n/, read_file($trace) : ();
  unlink $trace;
  return join ' ', $status, time - $begin, sort keys %reached;
});
for my $i (0 .. $#tests) {
  my ($status, $time, @reached) = split / /, $traces[$i];
  my $test = join "\t", @{$tests[$i]};
  if ($status != 0) { print "  fails without a mutant, left out: $test\n"; next; }
  $seconds{$test} = $time;
  push @{$tests_of{$_}}, $test for @reached;
}

# Each mutant: the tests that reach it, those of its layer first and then the fastest, until one fails or those of the
# other layers have taken 90 s.
my @mutants = sort { $planted{$a}{file} cmp $planted{$b}{file} || $planted{$a}{line} <=> $planted{$b}{line} } keys %planted;
my @caught = in_parallel(\@mutants, sub {
  my ($k) = @_;
  my $own = 'test_' . (split m{/}, $planted{$k}{file})[0];
  my %other = map { $_ => !/^\Q$own\E\t/ } @{$tests_of{$k} // []};
  my $left = 90;
  local $ENV{MUTANT} = $k;
  for my $test (sort { $other{$a} <=> $other{$b} || $seconds{$a} <=> $seconds{$b} } keys %other) {
    last if $other{$test} && ($left -= $seconds{$test}) < 0;
    my ($program, $pattern) = split /\t/, $test;
    return "$program: $pattern" if run_test($program, $pattern, 20 + 5 * $seconds{$test}) != 0;
  }
  return '';
});
# Those of equivalent.txt do not count.
my %equivalent = map { $_ => 1 } grep { /^[^#\s]/ } split /\n/, read_file('tests/mutants/equivalent.txt');
my %table;
for my $i (0 .. $#mutants) {
  my $m = $planted{$mutants[$i]};
  my $row = $table{$m->{file}} //= {mutants => 0, caught => 0, equivalent => 0};
  ++$row->{mutants};
  if ($caught[$i] ne '') { ++$row->{caught}; next; }
  my $name = $m->{rule} < 0 ? 'dropped' : $rules[$m->{rule}][0];
  my $text = $m->{text} =~ s/^\s+//r;
  if ($equivalent{"$m->{file}: $name: $text"}) { ++$row->{equivalent}; next; }
  print "SURVIVES $mutants[$i] $m->{file}:", $m->{line} + 1, ": $name: `$text`", $tests_of{$mutants[$i]} ? '' : ' (no test reaches it)', "\n";
}
my ($all, $all_caught) = (0, 0);
print "| file | mutants | caught | equivalent |\n| --- | ---: | ---: | ---: |\n";
for my $file (sort keys %table) {
  print "| $file | $table{$file}{mutants} | $table{$file}{caught} | $table{$file}{equivalent} |\n";
  $all += $table{$file}{mutants} - $table{$file}{equivalent};
  $all_caught += $table{$file}{caught};
}
print "$all_caught of $all mutants that are not equivalent are caught\n";
exit($all > 0 && $all_caught >= 0.95 * $all ? 0 : 1);
