"""What Qwen3-Embedding-0.6B costs in each precision: load time, memory, time of a query, beside plain FlagEmbedding.

Run ``python -m benchmarks.qwen3`` (it needs the extra ``qwen3``, 4 GB of memory, 1.3 GB of disk and some minutes). The
model has the real shape (28 layers, 1024 wide, 151,669 tokens) and random weights: times and memory are real,
similarities are not.
Each precision runs in a process of its own, one after the other.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

TOKENS = 40  # of the instructed query
PRECISIONS = ("fp32", "bf16", "int8")
REFERENCE = "FlagEmbedding"
TIME, RESIDENT, PEAK = 0.15, 1.8, 3.2  # goals for int8: of FlagEmbedding's time; GB after load; GB while loading
END = "<|endoftext|>"
VOCABULARY = 151_669


# --- a model of the real shape ---------------------------------------------------------------------------------------


def make_model(folder: Path) -> None:
    """Write config, random weights (bf16, as published) and a tokenizer of the real size."""
    import torch
    from transformers import Qwen3Config, Qwen3Model

    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=32_768, rope_theta=1_000_000,
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen3Model._from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)


def _tokenizer() -> Any:
    """Return a byte-level BPE of all pairs of bytes and as many triples as fill the vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    merges: list[tuple[str, str]] = []
    pairs = [(left, right) for left in letters for right in letters]
    triples = ((left + middle, right) for left, middle in pairs for right in letters)
    for left, right in [*pairs, *(triple for triple, _ in zip(triples, range(VOCABULARY), strict=False))]:
        if len(vocabulary) == VOCABULARY - 1:
            break
        vocabulary[left + right] = len(vocabulary)
        merges.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([END])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)


# --- one process, one precision --------------------------------------------------------------------------------------


def memory_gb(name: str) -> float:
    """Return ``VmRSS`` (now) or ``VmHWM`` (the most so far) of this process, in GB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e9
    raise click.ClickException("This needs Linux: memory is read from /proc.")


def _flag(folder: Path) -> Callable[[str], Any]:
    from FlagEmbedding import FlagLLMModel

    from stackmem.adapters.qwen3_embedder import TASK
    from stackmem.adapters.qwen3_files import QUERY_FORMAT

    flag = FlagLLMModel(
        str(folder), devices="cpu", use_fp16=False, query_instruction_for_retrieval=TASK,
        query_instruction_format=QUERY_FORMAT,
    )  # fmt: skip
    return lambda text: flag.encode_queries([text])


def _ours(folder: Path, precision: str, threads: int) -> Callable[[str], Any]:
    from stackmem.adapters.qwen3_embedder import Qwen3Embedder

    embedder = Qwen3Embedder(str(folder), precision=precision, threads=threads)
    embedder.load()
    return lambda text: embedder.embed_queries([text])


def query(folder: Path) -> str:
    """Return a query that has exactly TOKENS tokens with its instruction and the end."""
    from stackmem.adapters.qwen3_embedder import TASK
    from stackmem.adapters.qwen3_files import QUERY_FORMAT, read_card

    card, text = read_card(str(folder)), ""
    while len(card.tokens(QUERY_FORMAT.format(TASK, text), TOKENS + 1)) < TOKENS:
        text += "a"
    return text


def measure(folder: Path, what: str, threads: int, times: int) -> dict[str, float]:
    """Load in this process, ask, and return the figures."""
    started = time.perf_counter()
    embed = _flag(folder) if what == REFERENCE else _ours(folder, what, threads)
    loaded = time.perf_counter() - started
    figures = {"load_s": loaded, "resident_gb": memory_gb("VmRSS"), "peak_gb": memory_gb("VmHWM")}
    text, spent = query(folder), []
    for _ in range(times + 1):
        started = time.perf_counter()
        embed(text)
        spent.append((time.perf_counter() - started) * 1000)
    return figures | {"query_ms": statistics.median(spent[1:]), "query_least_ms": min(spent[1:])}


# --- all of them -----------------------------------------------------------------------------------------------------


def _child(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.qwen3", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def goals(found: dict[str, dict[str, float]]) -> dict[str, bool]:
    """Return each goal in words, and whether it is met."""
    int8, share = found["int8"], found["int8"]["query_ms"] / found[REFERENCE]["query_ms"]
    return {
        f"int8: a query takes {share:.3f} of {REFERENCE}'s time (at most {TIME})": share <= TIME,
        f"int8: {int8['resident_gb']:.2f} GB after load (at most {RESIDENT})": int8["resident_gb"] <= RESIDENT,
        f"int8: {int8['peak_gb']:.2f} GB while loading (at most {PEAK})": int8["peak_gb"] <= PEAK,
    }


def show(found: dict[str, dict[str, float]]) -> None:
    """Print the table and the goals."""
    click.echo(f"{'':14}{'load s':>8}{'after GB':>10}{'peak GB':>9}{'query p50 ms':>14}{'least ms':>10}")
    for what, figures in found.items():
        click.echo(
            f"{what:14}{figures['load_s']:8.1f}{figures['resident_gb']:10.2f}{figures['peak_gb']:9.2f}"
            f"{figures['query_ms']:14.0f}{figures['query_least_ms']:10.0f}"
        )
    for sentence, met in goals(found).items():
        click.echo(f"  {'ok ' if met else 'NOT'} {sentence}")


@click.command()
@click.option("--model", type=click.Path(exists=True, file_okay=False, path_type=Path), help="A model that is there.")
@click.option("--threads", default=0, help="Of ours; 0: as the setting's default. FlagEmbedding takes all cores.")
@click.option("--times", default=15, show_default=True, help="Queries of each.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there.")
@click.option("--only", hidden=True, help="Measure this one, in this process.")
def main(model: Path | None, threads: int, times: int, json_file: Path | None, only: str | None) -> None:
    """Print what each precision costs on this machine."""
    if only == "make":
        make_model(model or Path())
        return
    if only and model:
        click.echo(json.dumps(measure(model, only, threads, times)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        if model is None:
            model = Path(temporary)
            _child("--only", "make", "--model", str(model))
        found = {
            what: json.loads(
                _child(
                    "--only", what, "--model", str(model), "--threads", str(threads), "--times", str(times)
                ).splitlines()[-1]
            )
            for what in (REFERENCE, *PRECISIONS)
        }
    show(found)
    if json_file:
        json_file.write_text(json.dumps(found, indent=2), "utf-8")


if __name__ == "__main__":
    main()
