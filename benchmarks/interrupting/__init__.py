"""Parts of `benchmarks/interruptions.py`."""
