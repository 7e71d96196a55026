"""Networks that go on learning: heads on frozen features, and a memory for each layer.

Its parts are imported by name, since most need torch.
"""
