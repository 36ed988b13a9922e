"""PyTorch's DataLoader with two workers, by each start method, and a few steps of an optimiser."""

import hashlib

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Rows(Dataset):
    """Tensors, each with a record beside it."""

    def __len__(self):
        return 600

    def __getitem__(self, number):
        return torch.full((64,), float(number)) ** 2, {"name": f"row {number}", "tags": [str(number)] * 5}


def collate(rows):
    """Returns a batch."""
    return torch.stack([tensor for tensor, _ in rows]), [record for _, record in rows]


def main(method):
    """Reads all rows twice, and prints what was read and learnt."""
    model = torch.nn.Linear(64, 8)
    with torch.no_grad():
        model.weight.fill_(0.5)
        model.bias.zero_()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-12)
    total, records = torch.zeros(64, dtype=torch.float64), hashlib.sha1()
    for _ in range(2):
        loader = DataLoader(
            Rows(), batch_size=50, num_workers=2, collate_fn=collate, multiprocessing_context=method
        )
        for batch, names in loader:
            total += batch.double().sum(0)
            records.update(repr(names).encode())
            optimiser.zero_grad()
            model(batch).mean().backward()
            optimiser.step()
    print(method, total[:2].tolist(), records.hexdigest(), round(float(model.weight.detach().sum()), 3))


if __name__ == "__main__":
    for each in ("fork", "spawn", "forkserver"):
        main(each)
