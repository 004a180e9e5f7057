"""A tiny Qwen3 embedding model, made on the spot: the real code path, no download."""

import json
from pathlib import Path
from typing import Any

import pytest

NEEDED = ("torch", "transformers", "FlagEmbedding")
END = "<|endoftext|>"
TEXTS = [
    "ユーザーの猫の名前はモモで、三歳になる。",
    "The user bought a Fujitsu PC for 130,000 yen in July.",
    "来月は妹と京都へ旅行に行く予定だ。金閣寺と抹茶が楽しみらしい。",
]


def require_packages() -> None:
    """Skip what needs the extra ``qwen3`` where it is not installed."""
    for name in NEEDED:
        pytest.importorskip(name, reason="Install the extra [qwen3] (gigabytes) to run the tests of that embedder.")


def make_model(folder: Path, *, end: bool = True, padding_side: str = "right", head: bool = False) -> Path:
    """Write config, tokenizer and random weights: 64 wide, 2 layers.

    Without ``end`` nothing is appended to a text; with ``head`` the weights are named as those of a chat model.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3Model

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=400, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=1024, initializer_range=0.3,
    )  # fmt: skip
    (Qwen3ForCausalLM if head else Qwen3Model)(config).save_pretrained(folder)
    make_tokenizer(end=end).save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"padding_side": padding_side}))
    return folder


def make_tokenizer(*, end: bool = True) -> Any:
    """Return a byte-level BPE trained on three sentences, the end appended as Qwen3-Embedding's does."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    if end:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {END}", special_tokens=[(END, tokenizer.token_to_id(END))]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)
