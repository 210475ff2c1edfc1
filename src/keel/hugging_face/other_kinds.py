"""Kinds of models that Keel does not open: what each is, which kind that opens is nearest, and whether it can be made
to open.

In: a config.json whose `model_type` is not known. Out: a sentence or two for the error.

Notable choices
- Nearest by what a model is, never by spelling: bart is not bert.
- A conversion is only given where a test follows it and finds the same vectors.
- A kind that is not listed says what it is by the name of its class, if that follows the usage of `transformers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HEADLESS = "change model_type to '{0}' and remove architectures (only for a folder without a head)"


@dataclass(frozen=True)
class OtherKind:
    what: str
    nearest: str | None = None  # the model_type of a kind that opens
    conversion: str | None = None

    def told(self) -> str:
        near = f"the nearest kind that opens is {self.nearest}" if self.nearest else "no kind that opens is near"
        return f"It is {self.what}; {near}. " + (f"To convert it, {self.conversion}." if self.conversion else NO_WAY)


NO_WAY = "It cannot be converted."
DECODER = OtherKind("a decoder that continues texts, not an encoder", "gpt2")
SEQ2SEQ = OtherKind("an encoder with a decoder that writes texts", "transformer")
PICTURES = OtherKind("a model of images or sound")
LONG_TEXTS = "for long texts, with sparse attention and a table of positions"
WITH_LAYOUT = "that also reads where words are on a page"
CAMEMBERT = (
    "write its tokenizer.json with transformers' AutoTokenizer if it has none (its sentencepiece.bpe.model alone would "
    "give wrong ids), then change model_type to 'xlm-roberta' and Camembert to XLMRoberta in architectures"
)

DECODERS = (
    *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gpt_neo", "gpt_neox", "gptj", "opt"),
    *("bloom", "gemma", "gemma2", "phi", "phi3", "falcon", "mpt", "olmo", "olmo2", "stablelm", "openai-gpt", "ctrl"),
    *("gpt_bigcode", "starcoder2", "codegen", "cohere", "granite", "smollm3", "glm", "mamba", "mamba2", "rwkv", "xglm"),
    *("deepseek_v2", "deepseek_v3", "gpt_oss", "modernbert-decoder", "biogpt"),
)
SEQ2SEQS = (
    *("bart", "mbart", "t5", "mt5", "umt5", "longt5", "switch_transformers", "pegasus", "pegasus_x", "marian", "led"),
    *("m2m_100", "nllb-moe", "blenderbot", "blenderbot-small", "bigbird_pegasus", "prophetnet", "fsmt", "plbart"),
    *("mvp", "encoder-decoder", "t5gemma"),
)
OTHERS = ("vit", "clip", "siglip", "beit", "deit", "swin", "resnet", "wav2vec2", "hubert", "wavlm", "whisper", "clap")

OTHER_KINDS: dict[str, OtherKind] = {
    **dict.fromkeys(DECODERS, DECODER),
    **dict.fromkeys(SEQ2SEQS, SEQ2SEQ),
    **dict.fromkeys(OTHERS, PICTURES),
    "camembert": OtherKind("RoBERTa's architecture with a sentencepiece tokenizer", "xlm-roberta", CAMEMBERT),
    "data2vec-text": OtherKind(
        "RoBERTa's architecture with its own tensor names", "roberta", HEADLESS.format("roberta")
    ),
    "ernie": OtherKind(
        "BERT's architecture with its own tensor names, and with embeddings of tasks if use_task_id is true",
        "bert",
        f"{HEADLESS.format('bert')[:-1]} and without embeddings of tasks)",
    ),
    "splinter": OtherKind("BERT with a head for questions", "bert", HEADLESS.format("bert")),
    "xlm-roberta-xl": OtherKind("XLM-R with norms before its layers (pre-norm)", "xlm-roberta"),
    "roberta-prelayernorm": OtherKind("RoBERTa with norms before its layers (pre-norm)", "roberta"),
    "megatron-bert": OtherKind("BERT with norms before its layers (pre-norm)", "bert"),
    "xmod": OtherKind("XLM-R with an adapter for each language in every layer", "xlm-roberta"),
    "jina_embeddings_v3": OtherKind("XLM-R with rotary positions and an adapter for each task", "xlm-roberta"),
    "xlm": OtherKind("a multilingual encoder with embeddings of languages", "xlm-roberta"),
    "flaubert": OtherKind("an encoder for French with the layers of xlm", "xlm-roberta"),
    "rembert": OtherKind("a multilingual BERT with separate input and output embeddings", "xlm-roberta"),
    "luke": OtherKind("RoBERTa with embeddings of entities and attention to them", "roberta"),
    "ibert": OtherKind("RoBERTa with layers for integer arithmetic", "roberta"),
    "deberta": OtherKind("the first DeBERTa, which stores and scales its projections otherwise", "deberta-v2"),
    "xlnet": OtherKind("an encoder that predicts tokens in any order, with the attention of Transformer-XL", "mpnet"),
    "longformer": OtherKind(f"RoBERTa {LONG_TEXTS}", "modernbert"),
    "big_bird": OtherKind(f"BERT {LONG_TEXTS}", "modernbert"),
    "nomic_bert": OtherKind("BERT with rotary positions and gated feed-forward layers", "modernbert"),
    "gte": OtherKind("BERT with rotary positions and gated feed-forward layers", "modernbert"),
    "eurobert": OtherKind("an encoder with the layers of llama", "modernbert"),
    "roformer": OtherKind("BERT with rotary positions", "modernbert"),
    "funnel": OtherKind("an encoder whose layers shorten the text, pretrained as ELECTRA", "electra"),
    "convbert": OtherKind("ELECTRA with convolutions beside its attention", "electra"),
    "mobilebert": OtherKind("a narrow BERT with bottlenecks in every layer", "distilbert"),
    "squeezebert": OtherKind("BERT with grouped convolutions for its projections", "bert"),
    "roc_bert": OtherKind("BERT for Chinese that also reads how characters sound and look", "bert"),
    "layoutlm": OtherKind(f"BERT {WITH_LAYOUT}", "bert"),
    "tapas": OtherKind("BERT that reads tables, with embeddings of rows and columns", "bert"),
    "lilt": OtherKind(f"RoBERTa {WITH_LAYOUT}", "roberta"),
    "fnet": OtherKind("BERT with Fourier transforms for its attention", "bert"),
    **dict.fromkeys(("nystromformer", "yoso", "mra"), OtherKind("BERT with an approximation of attention", "bert")),
    "reformer": OtherKind("a model of long texts with hashed attention and reversible layers", "modernbert"),
    "canine": OtherKind("an encoder of characters without a tokenizer"),
    "perceiver": OtherKind("an encoder of bytes without a tokenizer"),
    **dict.fromkeys(("esm", "esmc"), OtherKind("an encoder of proteins")),
}

BY_CLASS = {  # the end of the name of a class
    "ForCausalLM": DECODER,
    "LMHeadModel": DECODER,
    "ForConditionalGeneration": OtherKind("a model that writes texts, not an encoder"),
    "ForMaskedLM": OtherKind("an encoder whose layers Keel does not have"),
}


def described(model_type: Any, published: dict[str, Any]) -> str:
    """What a folder with this config.json is, if that is known; else nothing."""
    if isinstance(model_type, str) and model_type in OTHER_KINDS:
        return OTHER_KINDS[model_type].told()
    names = published.get("architectures") or [""]
    return next((kind.told() for end, kind in BY_CLASS.items() if str(names[0]).endswith(end)), "")
