"""Environment variables that matter to RDMA programs, from what people paste; secrets are never taken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rdmadiag.evidence.log_line import host_of, prompt_command
from rdmadiag.evidence.row import Line, Row, Text
from rdmadiag.patterns import late

TABLES = ("env",)

VALUE_CHARACTERS = 1000
"""A longer value is cut."""

_PREFIXES = (
    r"(NCCL|RCCL|UCX|UCC|MC|NIXL|GLOO|NVSHMEM|FI|OFI|MOONCAKE|RDMAV|IBV|MLX[45]|HCCL|SHARP|LMCACHE|EFA|PSM[23]|DEEPEP|"
    r"OMPI_MCA_(btl|pml|mtl|osc)|VLLM_(NIXL|MOONCAKE|KV)|SGLANG_(DISAGG|MOONCAKE|NIXL)|I_MPI_(FABRICS|OFI)|MV2)"
)
_NAMES = (
    rf"({_PREFIXES}_[A-Z0-9_a-z]+|OMPI_MCA_(btl|pml|mtl|osc)|PYTORCH_(CUDA_)?ALLOC_CONF|VLLM_HOST_IP|I_MPI_FABRICS|"
    r"(CUDA|HIP|ROCR|ASCEND_RT|NVIDIA)_VISIBLE_DEVICES)"
)
_ALLOWED = late(_NAMES)
_SECRET = late(r"(?<![PMRL])KEY|TOKEN|SECRET|PASS|CREDENTIAL")  # a PKEY, MKEY, RKEY or LKEY is no secret
_LOGIN = late(r"(://)[^/@\s]+@")


def allowed(name: str) -> bool:
    """Tell whether a variable matters to RDMA and cannot be a secret."""
    return bool(_ALLOWED.fullmatch(name)) and not _SECRET.search(name.upper())


def safe_value(value: str) -> str:
    """Return a value without quotes, without a login in an address, and not too long."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return _LOGIN.sub(r"\1", value)[:VALUE_CHARACTERS]


def parse(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `env`, exports, command lines, container specifications, and what NCCL and UCX log of it."""
    seen: set[tuple[str | None, str, str]] = set()
    pending = ""
    for number, text in lines:
        name = _YAML_NAME.match(text)
        value = _YAML_VALUE.match(text) if pending else None
        found = [(pending, value[1])] if value else [] if name else list(assignments(text))
        pending = name[1] if name else ""
        for key, given in found:
            entry = (host_of(text), key, safe_value(given))
            if allowed(key) and entry not in seen:
                seen.add(entry)
                yield Row("env", {"name": key, "value": entry[2]}, number)


def assignments(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each variable that a line sets or shows; the names are not yet checked."""
    if match := _LOGGED.search(text):
        yield match[1], match[2].removesuffix(".")
    elif match := _UCX_LOGGED.search(text):
        yield from _ASSIGNMENT.findall(match[1])
    elif match := _MAPPED.match(text) or _PYTHON.search(text) or _JSON_PAIR.search(text):
        yield match[1], match[2]
    else:
        yield from in_command(prompt_command(text) or text)


_VARIABLE = r"[A-Z][A-Z0-9_a-z]{2,80}"
_VALUE = r"\"[^\"]*\"|'[^']*'|[^\s\"';|&]*"
_LOGGED = late(rf"\b({_VARIABLE}) set (?:by environment )?to (\S+)")
_UCX_LOGGED = late(r"UCX_\* env variables?: (.*)")
_ASSIGNMENT = late(rf"\b({_VARIABLE})=({_VALUE})")
_MAPPED = late(rf"[\s-]*[\"']?({_VARIABLE})[\"']?\s*:\s+[\"']?([^\"'\s]+?),?[\"']?,?\s*$")
_PYTHON = late(rf"environ(?:\[|\.setdefault\()[\"']({_VARIABLE})[\"'](?:\]\s*=|,)\s*(?:str\()?[\"']?([^\"')]*)")
_JSON_PAIR = late(rf"[\"']?name[\"']?\s*:\s*[\"']?({_VARIABLE})[\"']?,\s*[\"']?value[\"']?\s*:\s*[\"']?([^\"'}}]*)")
_YAML_NAME = late(rf"\s*-?\s*[\"']?name[\"']?:\s*[\"']?({_VARIABLE})[\"']?,?\s*$")
_YAML_VALUE = late(r"\s*[\"']?value[\"']?:\s*[\"']?([^\"']*)[\"']?\s*$")
_WORD = late(r"(?:[^\s\"']|\"[^\"]*\"|'[^']*')+")
_LEADING = ("export", "env", "sudo", "set", "declare", "-x", "-", "*", "ENV", "nohup", "time", "bash", "-c", "&&")
_OPTIONS = ("-e", "--env", "-x", "--x", "-genv", "--mca", "-mca")


def in_command(command: str) -> Iterator[tuple[str, str]]:
    """Yield what a command line sets: before the program, by -e, --env, -x, --export, -genv, --mca, setenv, ENV."""
    words = _WORD.findall(command)
    leading, option = True, ""
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        if option in ("--mca", "-mca"):
            yield f"OMPI_MCA_{word}", following
        elif option == "-genv" or (leading and option in ("setenv", "ENV") and "=" not in word):
            yield word, following
        elif leading or option in _OPTIONS or word.startswith(("--env=", "--export=", "-e")):
            yield from _in_word(word)
        leading = leading and (word in _LEADING or bool(_ASSIGNMENT.match(word.strip("\"'"))) or word == "setenv")
        option = word


def _in_word(word: str) -> Iterator[tuple[str, str]]:
    word = word.removeprefix("--env=").removeprefix("-e")
    if word.startswith("--export="):
        for part in word.removeprefix("--export=").split(","):
            yield from _in_word(part)
        return
    if word[:1] in "\"'" and word[-1:] == word[:1]:
        word = word[1:-1]
    if match := late(rf"({_VARIABLE})=(.*)", re.S).fullmatch(word):
        yield match[1], match[2].rstrip(";")


# A sign is wider than what is taken (it also sees advice in prose): few and short ones are fast.
_SEEN = rf"({_PREFIXES}_?|PYTORCH_|VLLM_HOST|VISIBLE_DEV)[A-Za-z0-9_]*"

TEXTS = (
    Text(
        "environment",
        (
            rf"{_SEEN}[\"']?[ \t]*[=:\]]",
            rf"(setenv|ENV|-genv)[ \t]+{_SEEN}[ \t]",
            rf"name[\"']?[ \t]*:[ \t]*[\"']?{_SEEN}",
            rf"environ\.setdefault\([\"']{_SEEN}",
            r"--?mca[ \t]+(btl|pml|mtl|osc)",
        ),
        parse,
        ("env", "printenv", "export"),
        by_line=True,
    ),
    Text(
        "environment in a log",
        (r" set by environment to [^ ]", r"(NCCL|RCCL)_[A-Z0-9_]+ set to [^ ]", r"UCX_\* env variables?: "),
        parse,
        by_line=True,
        log="application",
    ),
)
