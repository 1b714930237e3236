"""Optimisers, CUDA graphs, averaged weights and image augmentation."""
