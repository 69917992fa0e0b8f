#!/usr/bin/perl
# Doxygen's filter for Markdown: markdown.pl SOURCE FILE prints a page with ```math blocks as formulas and
# identifiers for its title and its sections. Links to pages below it in the folders make those its subpages in
# the tree of the site; links to files that are not pages become text.
use strict;
use warnings;
my ($source, $file) = @ARGV;
open(my $in, '<', $file) or die "$file: $!\n";
my $text = do { local $/; <$in> };
my $path = $file =~ s{^\Q$source\E/}{}r;

# The identifier of a page. Those that Doxygen makes up differ between its versions.
sub id_of {
  my ($page) = @_;
  return 'index' if $page eq 'README.md';
  $page =~ s{(/README)?\.md$}{};
  return $page =~ s{\W}{_}gr . '_page';
}

# The page that a link leads to, relative to the source.
sub resolved {
  my ($target) = @_;
  my @parts = split m{/}, $path;
  pop @parts;
  for my $part (split m{/}, $target) {
    if ($part eq '..') { pop @parts }
    elsif ($part ne '.') { push @parts, $part }
  }
  return join '/', @parts;
}

# The identifier of a section: that of its page, and the name that GitHub gives it.
sub section_of {
  my ($page, $name) = @_;
  return id_of($page) . '_' . lc($name) =~ tr/ /-/r =~ s/[^\w-]//gr;
}

my %subpages;
sub link_to {
  my ($words, $target) = @_;
  my ($file, $section) = $target =~ /^([^#]*)#?(.*)$/;
  my $page = $file eq '' ? $path : resolved($file);
  $page = "$page/README.md" if -e "$source/$page/README.md";
  return $words unless $page =~ /\.md$/;
  if ($section ne '') {
    $words =~ s/`//g;  # links cannot contain code
    return '\ref ' . section_of($page, $section) . " \"$words\"";
  }
  $words =~ s/`//g;
  my $below = $path =~ m{^(.+)/README\.md$} && $page =~ m{^\Q$1\E/} && $page ne 'train/options.md';
  my $command = $below && !$subpages{$page}++ ? 'subpage' : 'ref';
  return "\\$command " . id_of($page) . " \"$words\"";
}

my $id = id_of($path);
my $contents = $path eq 'train/options.md' ? "\n\n[TOC]" : '';
$text =~ s/^(# [^\n{]*)\n/$1 {#$id}$contents\n/ unless $id eq 'index';
$text =~ s/^```math\n(.*?)^```$/\\f[\n$1\\f]/gms;
# Outside of code blocks, whose brackets mean something else.
my ($out, %sections) = ('');
for my $part (split /(^```.*?^```$)/ms, $text) {
  $part =~ s!^(##+ )([^\n{]*[^\n{ ])$!$sections{$2}++ ? "$1$2" : "$1$2 {#" . section_of($path, $2) . '}'!gme unless $part =~ /^```/;
  $part =~ s{(?<![\\\$\w`])\$([^\$`\n]+)\$(?!\w)}{\\f\$$1\\f\$}g unless $part =~ /^```/;
  $part =~ s!^<a id="([\w-]+)"></a>$!'\\anchor ' . section_of($path, $1)!gme unless $part =~ /^```/;
  $part =~ s{(?<!!)\[([^\]\[]*)\]\((?!https?:)([^)\s]*)\)}{link_to($1, $2)}ge unless $part =~ /^```/;
  $out .= $part;
}
print $out;
