"""Benchmarks, run by hand: each prints a table and keeps its raw results in bench/results."""
