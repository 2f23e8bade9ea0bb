"""Triton and CUDA graphs: the only room that knows them. `choice` says which kernels train a head."""
