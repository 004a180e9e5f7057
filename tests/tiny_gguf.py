"""A model in a file: Qwen2's architecture and a vocabulary of single bytes, with random weights. It talks rubbish."""

from pathlib import Path

import gguf
import numpy as np

WIDTH, HEADS, LAYERS, INNER, CONTEXT = 32, 2, 1, 64, 16384
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Like Qwen3's: tools in the system prompt, calls in <tool_call>, and thinking unless it is switched off.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>
Call one with <tool_call>{"name": …, "arguments": …}</tool_call><|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""


def byte_letters() -> list[str]:
    """Return the letter that stands for each byte in GPT-2's vocabulary (its ``bytes_to_unicode``)."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(byte if byte in shown else next(others)) for byte in range(256)]


def write_model(path: Path, *, seed: int = 0) -> Path:
    """Write the model, about 100 KB, and return its path."""
    out = gguf.GGUFWriter(path, "qwen2")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_rope_freq_base(10000.0)
    tokens = [*byte_letters(), "aa", *SPECIAL]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(tokens)
    out.add_token_types([gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * len(SPECIAL))
    out.add_token_merges(["a a"])  # none at all is an error
    out.add_eos_token_id(tokens.index("<|im_end|>"))
    out.add_pad_token_id(tokens.index("<|endoftext|>"))
    out.add_add_bos_token(False)
    out.add_chat_template(TEMPLATE)
    for name, shape in _shapes(len(tokens)).items():
        out.add_tensor(name, _weights(name, shape, seed))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def _shapes(words: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (words, WIDTH),
        "output_norm.weight": (WIDTH,),
        "output.weight": (words, WIDTH),
    }
    for layer in range(LAYERS):
        for name in "qkv":
            shapes[f"blk.{layer}.attn_{name}.weight"] = (WIDTH, WIDTH)
            shapes[f"blk.{layer}.attn_{name}.bias"] = (WIDTH,)
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (WIDTH,),
            f"blk.{layer}.attn_output.weight": (WIDTH, WIDTH),
            f"blk.{layer}.ffn_norm.weight": (WIDTH,),
            f"blk.{layer}.ffn_gate.weight": (INNER, WIDTH),
            f"blk.{layer}.ffn_up.weight": (INNER, WIDTH),
            f"blk.{layer}.ffn_down.weight": (WIDTH, INNER),
        }
    return shapes


def _weights(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    if name.endswith("norm.weight"):
        return np.ones(shape, dtype=np.float32)
    random = np.random.default_rng([seed, *name.encode()])
    return random.normal(0, 0.1, shape).astype(np.float32)
