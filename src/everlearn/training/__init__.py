"""What makes a step fast or better: optimisers, CUDA graphs, views of images."""
