"""A little work, half a second of churn, and a little work again."""

from kinds import work


def churn(rounds: int) -> None:
    """Allocates gigabytes and keeps nothing."""
    for _ in range(rounds):
        _ = [0] * 200


kept: list[object] = []
for turn in range(3):
    work(12, kept, turn)
churn(900_000)
for turn in range(3, 6):
    work(4, kept, turn)
print(f"burst_then_quiet: {len(kept)} kept")
