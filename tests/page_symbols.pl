#!/usr/bin/perl
# tests/page_symbols.pl SOURCE: checks the letters of the pages of attention variants. Every symbol of a formula, and
# every Greek or hatted letter of the text, is one of the letters of all pages or is introduced by the page itself: as
# "τ = …", "W (m, D)", "b and c are learned", "the bandwidth σ". And every symbol of a displayed formula is one that
# the comments of the variant's source, of what it includes, or of its definition use too. Papers have a title and a link.
use strict;
use warnings;
use utf8;
binmode(STDOUT, ':utf8');

my $source = $ARGV[0] or die "usage: page_symbols.pl SOURCE\n";
my %greek = (alpha => 'α', beta => 'β', gamma => 'γ', delta => 'δ', epsilon => 'ε', eta => 'η', theta => 'θ', kappa => 'κ',
  lambda => 'λ', mu => 'μ', nu => 'ν', xi => 'ξ', rho => 'ρ', sigma => 'σ', tau => 'τ', phi => 'φ', varphi => 'φ', psi => 'ψ',
  omega => 'ω', Delta => 'Δ', Sigma => 'Σ', Phi => 'Φ', Omega => 'Ω', pi => 'π', ell => 'ℓ');
my %mark = (hat => "\x{302}", tilde => "\x{303}", bar => "\x{304}");
# Letters that mean the same on all pages (attention/README.md): queries, keys, values and tokens; results; sizes; indices;
# the exponential, the sum, the number, the expectation, the identity.
my %known = map { $_ => 1 } qw(q k v x Q K V X O o N M D H i j l h d e Σ π E I);

sub slurp { my ($file) = @_; open(my $in, '<:utf8', $file) or die "$file: $!\n"; local $/; return scalar <$in> }

# A formula in LaTeX as plain letters.
sub plain {
  my ($text) = @_;
  $text =~ s/\\mathbb\{R\}//g;
  $text =~ s/\\sigma\s*\(/(/g;  # the sigmoid
  $text =~ s/\\(?:mathrm|mathbb|mathcal|text|texttt|operatorname)\{((?:\\.|[^{}])*)\}/length $1 > 1 ? ' ' : $1/ge;
  $text =~ s/\\(hat|tilde|bar)\s*\{?\s*(\\?[A-Za-z])\w*\}?/$2$mark{$1}/g;
  $text =~ s/\\(?:begin|end)\{\w+\}//g;
  $text =~ s/\\([A-Za-z]+)/exists $greek{$1} ? "$greek{$1} " : ' '/ge;
  $text =~ s/ +(?=[_^])//g;
  return $text;
}

# The symbols of plain text. A subscript is part of a name unless it is an index or a number: D_g, but q of q_i.
sub symbols {
  my ($text, $letters) = @_;
  my %found;
  while ($text =~ /(?<![\p{L}\p{M}_^])($letters\p{M}*)(?![\p{L}\p{M}])(?:_\{?(\p{L})\b)?/g) {
    my ($name, $below) = ($1, $2);
    $name .= "_$below" if $below && $below =~ /[ago]/ && $name =~ /^\p{Lu}$/;
    $found{$name} = 1;
  }
  return keys %found;
}

# Whether a text introduces a symbol. A mark is introduced for all letters: x̂ = … says what q̂ is.
sub introduces {
  my ($text, $s) = @_;
  $text =~ s/\s+/ /g;
  my $q = $s =~ /(\p{M})$/ ? "\\p{L}$1" : quotemeta $s;
  my $it = qr/(?<![\p{L}\p{M}_])$q(?![\p{L}\p{M}])(?:_\{?[^\s{}=]+\}?|ᵀ|'|\([^)]*\))*/;
  return $text =~ /$it\s*(?:=|∈|∼|~|≤|≥)/ || $text =~ /$it(?:, [^\s,.]+)* \([A-Za-z0-9][^)]*\)/ ||
    $text =~ /$it(?:, [^\s,.]+)*(?: (?:and|or) [^\s,.]+)? (?:is|are|uniform|learned|initialised)\b/ ||
    $text =~ /[a-z]{3,} \S{1,4} and $it/ ||
    $text =~ /(?<!\w)(?!(?:and|with|for|than|where|the|plus|in|of|to)\b)[a-z]{3,} $it(?=[\s,.;:)])/;
}

my ($failed, $pages, $symbols) = (0, 0, 0);
sub fail { print "$_[0]\n"; $failed = 1 }
for my $page (sort glob "$source/attention/variants/*.md") {
  ++$pages;
  my ($name) = $page =~ m{([^/]+)\.md$};
  my $text = slurp($page);
  $text =~ s/<!-- options.*?<!-- end -->//gs;
  fail("$page: $1 without its title and a link: [Title](https://arxiv.org/abs/…)") while $text =~ /(arXiv\s+\d\S*)/g;
  $text =~ s/\[[^\]]*\]\(https:[^)]*\)//g;
  $text =~ s/(?<![\\\$\w`])\$([^\$`\n]+)\$(?!\w)/plain($1)/ge;  # formulas within lines
  my @formulas = $text =~ /^```math\n(.*?)^```$/gms;
  my %bound = map { $_ => 1 } map { symbols(plain($_), qr/\p{L}/) } "@formulas" =~ /\\sum_(\{[^{}]*\}|\w)/g;
  my $formulas = join "\n", map { plain($_) } @formulas;
  (my $prose = $text) =~ s/^```.*?^```$//gms;
  $prose =~ s/"[^"]*"//g;  # names of tests
  (my $words = $prose) =~ s/`[^`]*`|σ\(//g;
  my %used = map { $_ => 1 } symbols($formulas, qr/\p{L}/), symbols($words, qr/[α-ωΔΦΩℓ]|\p{L}(?=\p{M})/);
  $prose =~ tr/`//d;
  delete @used{keys %bound};
  for my $symbol (sort grep { !$known{$_} } keys %used) {
    ++$symbols;
    fail("$page: $symbol is not introduced, as by \"$symbol = …\"") unless introduces("$formulas\n$prose", $symbol);
  }
  # The comments and texts of the source, and of what it includes of attention/, over three steps.
  my $code = "$source/attention/variants/$name.cpp";
  next unless -e $code;
  my %files = map { $_ => 1 } $code, "$source/attention/definitions/definitions.h";
  for (1 .. 3) {
    for my $header (map { slurp($_) =~ m{#include "longhand/(attention/[^"]+)\.h"}g } keys %files) {
      $files{$_} = 1 for grep { -e } "$source/$header.h", "$source/$header.cpp";
    }
  }
  my $comments = join "\n", map { slurp($_) =~ m{(//.*|"(?:\\.|[^"\\])*")}g } keys %files;
  for my $symbol (sort grep { !$known{$_} && !/τ|\p{M}/ } symbols($formulas, qr/\p{L}/)) {  # τ: 1 / sqrt(D) there
    my $q = quotemeta $symbol;
    fail("$page: $symbol of a formula is in no comment of its source or definition")
      unless $comments =~ /(?<![\p{L}\p{M}])$q(?![\p{L}\p{M}])/;
  }
}
fail("no pages in $source/attention/variants") unless $pages;
print "$pages pages, $symbols symbols\n";
exit $failed;
