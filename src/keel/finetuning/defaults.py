"""The learning rate and the epochs that a fine-tuning recipe leaves open (`auto`).

In: the settings, the encoder, the number of examples. Out: the settings with numbers, and a line that says why.

Notable choices
- The rate falls with the size of the encoder's layers. The rates recommended for BERT-Base (2e-5 to 5e-5, Devlin et al.
  2018) are ten times too low for an encoder of 4 layers of width 256: docs/notebook.md has the measurements.
- An encoder that was pretrained here has seen little text, compared with a published one, and has more to learn: its
  rate is higher.
- Few examples are seen more often, so that a run has at least some hundred steps; the best epoch is kept anyway.
- Fresh layers on a frozen encoder have a rate of their own: there is nothing pretrained to lose.
"""

from __future__ import annotations

from keel.configs import BackboneConfig
from keel.training.settings import AUTO, FinetuneSettings

BASE_SIZE = 12 * 768**2  # layers x width^2 of BERT-Base,
BASE_RATE = 3e-5  # its rate,
EXPONENT = 0.6  # and how the rate falls with the size
PRETRAINED_HERE = 2.5  # times the rate of a published encoder of the same size
HIGHEST_RATE = 1e-3
FROZEN_RATE = 1e-3
STEPS = 400  # that a run should have at least,
EPOCHS = (3, 8)  # as far as this allows


def choose(
    settings: FinetuneSettings, encoder: BackboneConfig, frozen: bool, here: bool, examples: int
) -> tuple[FinetuneSettings, str]:
    """The settings without `auto`, and what was chosen and why; empty if nothing was. `here`: pretrained here, or not
    at all."""
    chosen, reasons = dict[str, float](), list[str]()
    if settings.learning_rate == AUTO:
        rate = FROZEN_RATE if frozen else rate_for(encoder.layers, encoder.width, here)
        layers = f"{encoder.layers} layer{'s' * (encoder.layers != 1)}"
        shape = f"{layers} of width {encoder.width}{', pretrained here' if here else ''}"
        why = "a frozen encoder" if frozen else shape
        chosen["learning_rate"] = rate
        reasons.append(f"rate {rate:g} for {why}")
    if settings.epochs == AUTO:
        chosen["epochs"] = epochs_for(examples, settings.batch_size)
        reasons.append(f"{chosen['epochs']:g} epochs for {examples:,} examples")
    line = f"{'; '.join(reasons)} (training.learning_rate and training.epochs change it)" if reasons else ""
    return settings.model_copy(update=chosen), line


def rate_for(layers: int, width: int, here: bool) -> float:
    """Rounded to one digit, as people write rates."""
    rate = BASE_RATE * (BASE_SIZE / (max(1, layers) * width**2)) ** EXPONENT * (PRETRAINED_HERE if here else 1)
    return float(f"{min(HIGHEST_RATE, rate):.0e}")


def epochs_for(examples: int, batch_size: int) -> float:
    fewest, most = EPOCHS
    steps = max(1, -(-examples // batch_size))
    return float(min(most, max(fewest, -(-STEPS // steps))))
