"""What several methods use: calls of a model, gradients per sample, stored samples, penalties."""
