"""Tensors to tensors: the parts two or more backbones share."""
