"""Layers shared by two or more backbones: tensors in, tensors out."""
