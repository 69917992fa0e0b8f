#!/usr/bin/perl
# tests/page_template.pl SOURCE: the pages of attention variants have one form: a title, the idea, the sections below in
# this order, none of them empty, a command to try in the last one, and at most 900 words besides the generated blocks.
use strict;
use warnings;

my $source = $ARGV[0] or die "usage: page_template.pl SOURCE\n";
my @sections = ('Derivation', 'Code', 'Algorithm and cost', 'Weights', 'Where it fails', 'Relatives', 'Options', 'What is checked', 'See it');
my $most = 900;

my ($failed, $pages) = (0, 0);
for my $page (sort glob "$source/attention/variants/*.md") {
  next if $page =~ m{/gallery\.md$};  # all variants
  ++$pages;
  my $fail = sub { print "$page: $_[0]\n"; $failed = 1 };
  open(my $in, '<:utf8', $page) or die "$page: $!\n";
  my $text = do { local $/; <$in> };
  my ($head, @parts) = split /^## (.*)\n/m, $text;
  my %body = @parts;
  my $found = join ', ', @parts[grep { $_ % 2 == 0 } 0 .. $#parts];
  my $expected = join ', ', @sections;
  $fail->("sections: expected $expected; found $found") unless $found eq $expected;
  $fail->('expected a title "# NAME: …" and the idea in front of the first section')
    unless $head =~ /\A# [\w, ]+: .+\n\n\S/;
  for my $section (@sections) {
    $fail->("the section \"$section\" is empty") if exists $body{$section} && $body{$section} !~ /\w/;
  }
  $fail->('the section "See it" has no command: expected a line "    longhand …"')
    if exists $body{'See it'} && $body{'See it'} !~ /^    longhand \w/m;
  (my $written = $text) =~ s/<!-- (?:code|map|state|options):.*?<!-- end -->//gs;
  my $words = () = $written =~ /\S+/g;
  $fail->("$words words besides the generated blocks: expected at most $most") if $words > $most;
}
die "no pages in $source/attention/variants\n" unless $pages;
print "$pages pages\n";
exit $failed;
