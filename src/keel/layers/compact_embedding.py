"""An embedding matrix that trains only the rows used by the training data.

In: a full embedding matrix and the ids that occur. Out: the same vectors; gradients, optimizer state and clipping only
for those rows.

Notable choices
- A fine-tuning set uses a fraction of the vocabulary, but a dense optimizer updates the full matrix at every step, and
  a third of a small model is its embedding matrix. Rows that never occur get no gradient, so leaving them out changes
  nothing (except that weight decay no longer shrinks words that never occur).
- On disk and in `state_dict` the matrix is complete, so no other code has to handle this.

Shapes: T tokens, V vocabulary, U rows used, W width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel.errors import UserError
from keel.interfaces import Backbone


def compact_token_embeddings(backbone: Backbone, used: Tensor) -> None:
    """Replaces a backbone's token embeddings so that only the used rows are trained."""
    replace_token_embeddings(backbone, CompactEmbedding(backbone.token_embeddings(), used))


def replace_token_embeddings(backbone: Backbone, new: nn.Module) -> None:
    """Replaces the nn.Embedding that holds the backbone's token embeddings by another module."""
    table = backbone.token_embeddings()
    for name, part in backbone.named_modules():
        if isinstance(part, nn.Embedding) and part.weight is table:
            holder, _, attribute = name.rpartition(".")
            setattr(backbone.get_submodule(holder), attribute, new)
            return
    raise UserError("this backbone has no nn.Embedding that holds its token embeddings")


class CompactEmbedding(nn.Module):
    place: Tensor
    used: Tensor
    full: Tensor

    def __init__(self, table: Tensor, used: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(table.detach()[used].clone())  # (U, W)
        self.register_buffer("used", used, persistent=False)  # (U,)
        self.register_buffer("full", table.detach().clone(), persistent=False)  # (V, W)
        place = torch.zeros(len(table), dtype=torch.long)
        place[used] = torch.arange(len(used))
        self.register_buffer("place", place, persistent=False)  # (V,)

    def forward(self, ids: Tensor) -> Tensor:
        """(T, W). In training all ids are used ones; in evaluation any id may occur."""
        if self.training:
            return F.embedding(self.place[ids], self.weight)
        return F.embedding(ids, self._merged())

    def _merged(self) -> Tensor:
        with torch.no_grad():
            self.full[self.used] = self.weight
        return self.full

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self._merged().clone()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        table = state_dict[f"{prefix}weight"]
        with torch.no_grad():
            self.full.copy_(table)
            self.weight.copy_(self.full[self.used])
