"""A Qwen3 embedding model in memory: fp32 as FlagEmbedding loads it; bf16 and int8 read tensor by tensor."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stackmem.adapters.qwen3_files import QUERY_FORMAT, weight_files
from stackmem.exceptions import PermanentError

PARTS = 11  # of one layer; freed memory is given back after so many


def load(folder: Path, precision: str) -> Any:
    """Return the model, ready to be called with token ids. Raises PermanentError where it cannot be loaded."""
    from safetensors import SafetensorError
    from transformers.utils import logging

    logging.disable_progress_bar()  # this happens in the background of a terminal that says other things
    try:
        model = load_whole(folder) if precision == "fp32" else load_by_parts(folder, precision)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as exc:
        raise PermanentError(f"The model in {folder} cannot be loaded: {exc}") from exc
    give_back()
    return model


def load_whole(folder: Path) -> Any:
    """Return the fp32 model as FlagEmbedding loads it (the reference)."""
    from FlagEmbedding import FlagLLMModel

    flag = FlagLLMModel(str(folder), devices="cpu", use_fp16=False, query_instruction_format=QUERY_FORMAT)
    return flag.model.float().eval()


def load_by_parts(folder: Path, precision: str) -> Any:
    """Return the model in bf16, or with int8 Linear layers; one part at a time is in memory in full precision."""
    from transformers import AutoConfig, AutoModel

    if precision == "int8" and not torch.backends.mkldnn.is_available():
        raise PermanentError("int8 needs oneDNN, which this torch lacks: set STACKMEM_QWEN3_PRECISION=bf16.")
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    model.rotary_emb = type(model.rotary_emb)(config=config)  # its buffers are computed, not stored
    files = weight_files(folder)
    for number, (name, part) in enumerate(list(_leaves(model))):
        tensors = _tensors(folder, files, name, part)
        model.set_submodule(name, _bf16(part, tensors) if precision == "bf16" else _int8(part, tensors))
        if number % PARTS == 0:
            give_back()
    return model.eval()


def give_back() -> None:
    """Hand freed memory back to the system: glibc keeps what lay between what stays (0.9 GB after an int8 load)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, part in model.named_modules():
        if next(part.parameters(recurse=False), None) is not None:
            yield name, part


def _tensors(folder: Path, files: dict[str, tuple[Path, str]], name: str, part: nn.Module) -> dict[str, torch.Tensor]:
    from safetensors import safe_open

    found = {}
    for own, expected in part.named_parameters(recurse=False):
        key = f"{name}.{own}"
        if key not in files:
            raise PermanentError(f"The model in {folder} lacks {key}.")
        path, stored = files[key]
        # Opened anew each time: the pages that were read count as this process's memory until the file is closed.
        with safe_open(path, framework="pt") as file:
            found[own] = file.get_tensor(stored).clone()
        if found[own].shape != expected.shape:
            raise PermanentError(f"The model in {folder} has {key} of shape {tuple(found[own].shape)}.")
    return found


def _bf16(part: nn.Module, tensors: dict[str, torch.Tensor]) -> nn.Module:
    return _filled(part, {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()})


def _int8(part: nn.Module, tensors: dict[str, torch.Tensor]) -> nn.Module:
    if isinstance(part, nn.Linear):
        return Int8Linear(tensors["weight"].float(), tensors.get("bias"))
    if isinstance(part, nn.Embedding):
        return WideningEmbedding(tensors["weight"])
    return _filled(part, {name: tensor.float() for name, tensor in tensors.items()})


def _filled(part: nn.Module, tensors: dict[str, torch.Tensor]) -> nn.Module:
    part.load_state_dict(tensors, assign=True)
    return part.requires_grad_(False)


class WideningEmbedding(nn.Module):
    """A table that stays as it was stored (half the memory in bf16) and gives float32 rows."""

    def __init__(self, weight: torch.Tensor):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of these ids, shape (*ids.shape, width)."""
        return nn.functional.embedding(ids, self.weight).float()


class Int8Linear(nn.Module):
    """x W^T + b in int8: weights scaled by output channel, inputs by token, at the time of the call.

    A scale a token, not one for all: the first token of a Qwen model carries values hundreds of times larger than the
    rest, which would round to nothing beside them (https://arxiv.org/abs/2402.17762). It also keeps a text's vector
    apart from those it is batched with.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None):
        super().__init__()
        scale = _scale(weight)
        self.register_buffer("weight", torch.round(weight / scale).to(torch.int8))
        self.register_buffer("scale", scale.flatten())
        self.register_buffer("bias", None if bias is None else bias.float())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return outputs of shape (*inputs.shape[:-1], out_features), float32."""
        rows = inputs.reshape(-1, inputs.shape[-1])
        scale = _scale(rows)
        product = torch._int_mm(torch.round(rows / scale).to(torch.int8), self.weight.t())
        outputs = product * scale * self.scale
        if self.bias is not None:
            outputs = outputs + self.bias
        return outputs.reshape(*inputs.shape[:-1], -1)


def _scale(rows: torch.Tensor) -> torch.Tensor:
    return rows.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127
