"""The parts of benchmarks/run.py: each measures one thing in a process of its own and returns figures by flat keys."""
