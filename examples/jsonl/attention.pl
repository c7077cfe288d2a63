#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# attest check --cmd examples/jsonl/attention.pl --protocol jsonl: one JSON object a line, in and out.
use strict;
use warnings;
use JSON::PP;
use List::Util qw(max sum0);

my $json = JSON::PP->new->canonical;
open my $requests, '<&=', $ENV{ATTEST_READ_FD} or die "requests: $!";
open my $answers, '>&=', $ENV{ATTEST_WRITE_FD} or die "answers: $!";
$answers->autoflush(1);

sub attention {
    my ($request) = @_;
    my ($q, $k, $v) = map { $request->{tensors}{$_} } qw(q k v);
    my ($batch, $heads, $queries, $dim) = @{$q->{shape}};
    my ($keys, $width) = @{$v->{shape}}[2, 3];
    my @output;
    for my $head (0 .. $batch * $heads - 1) {
        for my $i (0 .. $queries - 1) {
            my $seen = $request->{causal} ? $keys - $queries + $i : $keys - 1;
            my $row = ($head * $queries + $i) * $dim;
            my @scores = map {
                my $column = ($head * $keys + $_) * $dim;
                $request->{scale} * sum0 map { $q->{data}[$row + $_] * $k->{data}[$column + $_] } 0 .. $dim - 1
            } 0 .. $seen;
            my $top = max(@scores) // 0;
            my @weights = map { exp($_ - $top) } @scores;
            my $total = sum0(@weights) || 1;
            for my $c (0 .. $width - 1) {
                push @output, number(sum0(map { $weights[$_] * $v->{data}[($head * $keys + $_) * $width + $c] } 0 .. $seen) / $total);
            }
        }
    }
    return {o => {shape => [$batch, $heads, $queries, $width], data => \@output}};
}

# JSON has no numbers for these.
sub number {
    my ($x) = @_;
    return $x != $x ? 'nan' : abs($x) == 9**9**9 ? ($x > 0 ? 'inf' : '-inf') : $x;
}

while (my $line = <$requests>) {
    my $request = $json->decode($line);
    my %answer = (id => $request->{id});
    if ($request->{op} eq 'hello') {
        @answer{qw(name version declaration)} =
            ('perl', '1.0', 'dtype=f32 head_dim=1..64 base=full,causal align=bottom_right precision=f32');
    } elsif (my $why = refusal($request)) {
        @answer{qw(status message)} = ('unsupported', $why);
    } else {
        $answer{tensors} = attention($request);
    }
    print $answers $json->encode(\%answer), "\n";
}

# What is not declared must be refused.
sub refusal {
    my ($request) = @_;
    return "$request->{op} is not served" if $request->{op} ne 'forward';
    return "dtype $request->{dtype}" if $request->{dtype} ne 'f32';
    my ($q, $k, $v) = map { $request->{tensors}{$_}{shape} } qw(q k v);
    return 'a size that is not served' if grep { $_ == 0 } @$q, @$k, @$v;
    return 'head_dim' if $q->[3] > 64 || $q->[3] != $v->[3];
    return 'fewer key heads than query heads' if $q->[1] != $k->[1];
    return 'scale' if abs($request->{scale} * sqrt($q->[3]) - 1) > 1e-12;
    return "base=$request->{base}" if $request->{base} eq 'prefix';
    return "align=$request->{align}" if $request->{causal} && $q->[2] != $k->[2] && $request->{align} ne 'bottom_right';
    my %known = map { $_ => 1 } qw(id op dtype scale base causal align num_threads outputs tensors);
    for my $key (sort keys %$request) { return $key unless $known{$key}; }
    for my $name (sort keys %{$request->{tensors}}) { return $name unless $name =~ /^[qkv]$/; }
    return 'lse' if exists $request->{outputs}{lse};
    return undef;
}
