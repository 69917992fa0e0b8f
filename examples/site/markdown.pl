#!/usr/bin/perl
# Doxygen's filter for Markdown: prints a page with ```math blocks as formulas, and with links that
# lead to other files than pages as text.
use strict;
use warnings;
local $/;
my $text = <>;
$text =~ s/^```math\n(.*?)^```$/\\f[\n$1\\f]/gms;
# Outside of code blocks, whose brackets mean something else.
sub link_to {
  my ($words, $target) = @_;
  $target =~ s/#.*//;  # sections have other names here
  return $target =~ /\.md$/ ? "[$words]($target)" : $words;
}
my $out = '';
for my $part (split /(^```.*?^```$)/ms, $text) {
  $part =~ s{(?<!!)\[([^\]\[]*)\]\((?!https?:|#)([^)\s]*)\)}{link_to($1, $2)}ge unless $part =~ /^```/;
  $out .= $part;
}
print $out;
