"""Names of version 0.1 that have changed: recipe keys, and keys in model folders.

In: an old key. Out: its new name. A recipe with an old key raises an error that names the new one (`recipe.py`); the
keys of a folder, which nobody edits by hand, are translated when it is read (`hugging_face/upgrade.py`).
"""

from __future__ import annotations

# For each section: the old name of a key, and its new name.
TRAINING = {
    "slices": "micro_batches",
    "lanes": "parallel_micro_batches",
    "batch_rows": "batch_size",
    "keep": "keep_checkpoints",
    "clip": "max_grad_norm",
}
DATA = {
    "copies": "static_masks",
    "judge": "eval_recipe",
    "short_share": "short_seq_prob",
    "random_share": "random_next_prob",
}
LONG_PHASE = {"share": "fraction"}
ENCODER = {"penalty": "mix_penalty", "restart": "reinit_layers", "freeze": "freeze_layers", "use": "frozen"}
BACKBONE = {
    "start_deviation": "init_std",
    "position_start": "position_init",
    "attention_start": "attention_init",
    "share": "share_parameters",
    "neighbourhood": "local_window",
    "global_base": "global_rope_base",
    "local_base": "local_rope_base",
    "spelling": "max_characters",
    "highways": "highway_layers",
    "least": "min_n",
    "most": "max_n",
}
ATTENTION = {"look": "causal"}
OBJECTIVES = {
    "share": "mask_prob",
    "longest": "max_words",
    "mask": "mask_replace_prob",
    "similar": "similar_replace_prob",
    "random": "random_replace_prob",
    "generator": "generator_size",
}
TASK = {
    "several": "multi_label",
    "smoothing": "label_smoothing",
    "most_labels": "max_labels",
    "listed": "top_labels",
    "longest_answer": "max_answer_length",
    "question_tokens": "max_question_length",
    "may_be_impossible": "unanswerable",
    "best": "n_best",
    "threshold": "null_threshold",
    "longest": "max_length",
    "beam": "beam_size",
}
MEMBERS = {"left_to_right": "causal_lm", "both_ways": "bidirectional_lm"}
RECIPES = {"bert-mini-left-to-right": "bert-mini-causal"}

SECTIONS = {
    "training": TRAINING,
    "data": DATA,
    "data.long_phase": LONG_PHASE,
    "encoder": ENCODER,
    "model.backbone": BACKBONE,
    "model.backbone.attention": ATTENTION,
    "task": TASK,
}


def new_name(key: str) -> str | None:
    """The key that replaced this one, such as `training.micro_batches` for `training.slices`; None: there is none."""
    section, _, name = key.rpartition(".")
    table = OBJECTIVES if section.startswith("model.objectives.") else SECTIONS.get(section, {})
    return f"{section}.{table[name]}" if name in table else None
