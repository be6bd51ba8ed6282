"""Benchmarks: ratios against real peers, each taken inside one run."""
