"""Which steps TaylorSeer computes, and which it foresees, as diffusers' hook does."""

import pytest
import torch

from pipelines.recipes.taylor import Foresight
from tests.pipelines.taylor import put_on


class Counting(torch.nn.Module):
    """Stands for a transformer: its last projection remembers at which steps it was run."""

    def __init__(self) -> None:
        super().__init__()
        self.proj_out = Projection()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj_out(x)


class Projection(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ran_at: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.ran_at.append(int(x[0]))
        return x


@pytest.mark.parametrize("first", [1, 3, 6])
@pytest.mark.parametrize("interval", [1, 2, 5])
def test_the_same_steps_are_computed_as_by_diffusers(interval: int, first: int) -> None:
    model = Counting()
    foresight = Foresight(interval=interval, first=first)
    put_on(model, foresight)
    for step in range(20):
        model(torch.full((1,), float(step)))
    foreseen = foresight.list_foreseen([20])
    assert model.proj_out.ran_at == [step for step in range(20) if step not in foreseen]
