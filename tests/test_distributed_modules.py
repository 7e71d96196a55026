"""Networks as they come out of training scripts: wrapped, compiled, in half precision."""

import copy
import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

import orfit

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional

SCRIPT = """
import os, sys, torch, orfit
from torch import distributed, nn
torch.set_num_threads(1)
rank = int(sys.argv[1])
distributed.init_process_group("gloo", rank=rank, world_size=2)
torch.manual_seed(0)
network = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3))
wrapped = nn.parallel.DistributedDataParallel(network)
X = torch.randn(40, 5, generator=torch.Generator().manual_seed(rank))
y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
learner = orfit.PerLayer(wrapped, noise=1.0, block=10)
assert learner.network is network
learner.learn(X, y)
if rank == 0:  # what the other one has learned is none of its business
    torch.manual_seed(0)
    alone = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3))
    orfit.PerLayer(alone, noise=1.0, block=10).learn(X, y)
    pairs = zip(alone.parameters(), network.parameters(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs)
    learner.save(sys.argv[2])
    assert orfit.load(sys.argv[2], model=wrapped).seen == 40
    backbone = orfit.Heads(wrapped)
    backbone.learn(X, y)
    assert backbone.predict(X).shape == (40,)
distributed.barrier()
distributed.destroy_process_group()
print("done", rank)
"""


@pytest.mark.slow
def test_modules_that_are_wrapped_for_two_processes(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(rank), str(tmp_path / "saved.safetensors")],
            env=environment | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for rank, process in enumerate(both):
        out, _ = process.communicate(timeout=300)
        assert f"done {rank}" in out, out


class Pieces(nn.Module):
    """Takes and returns what Hugging Face's models do."""

    def __init__(self, answer):
        super().__init__()
        self.words, self.head, self.answer = nn.Embedding(11, 6), nn.Linear(6, 3), answer

    def forward(self, input_ids, attention_mask):
        words = self.words(input_ids) * attention_mask[:, :, None]
        return self.answer(self.head(words.tanh().sum(dim=1)))


@pytest.mark.parametrize(
    "answer",
    [
        lambda logits: logits,
        lambda logits: {"logits": logits},
        lambda logits: SimpleNamespace(loss=None, logits=logits),
    ],
    ids=["a tensor", "a dictionary", "an object"],
)
@pytest.mark.parametrize("by_keyword", [True, False])
def test_inputs_by_name_or_in_order_and_outputs_with_logits(answer, by_keyword):
    torch.manual_seed(0)
    network = Pieces(answer)
    ids, mask = torch.randint(0, 11, (8, 4)), torch.ones(8, 4)
    mask[:, 3] = 0
    y = torch.arange(8) % 3
    X = {"attention_mask": mask, "input_ids": ids} if by_keyword else (ids, mask)
    twin = Pieces(lambda logits: logits)
    twin.load_state_dict(network.state_dict())
    lost = functional.cross_entropy(twin(ids, mask), y, reduction="none")
    f = (1e-6 + 2 * lost).sqrt()
    rows = [torch.autograd.grad(each, twin.parameters(), retain_graph=True) for each in f]
    J = torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])
    step = J.T @ torch.linalg.solve(J @ J.T + torch.eye(8), -f.detach())
    before = nn.utils.parameters_to_vector(network.parameters()).detach()
    orfit.PerLayer(network, noise=1.0).learn(X, y)
    moved = nn.utils.parameters_to_vector(network.parameters()).detach() - before
    assert torch.allclose(moved, step, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch.compile imports
def test_compiled_modules_are_known_by_their_own_names(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3))
    plain = copy.deepcopy(network)
    X, y = torch.randn(12, 5), torch.arange(12) % 3
    compiled = torch.compile(network)
    learner = orfit.PerLayer(compiled, noise=1.0, parameters=["2.*"], prior={"2.weight": 2.0})
    learner.learn(X, y)
    orfit.PerLayer(plain, noise=1.0, parameters=["2.*"], prior={"2.weight": 2.0}).learn(X, y)
    assert torch.equal(plain[2].weight, network[2].weight)
    path = tmp_path / "saved.safetensors"
    learner.save(path)
    assert orfit.load(path, model=plain).seen == 12, "saved compiled, loaded as it was written"
    assert not any("_orig_mod" in name for name in learner.state_dict()["tensors"])
