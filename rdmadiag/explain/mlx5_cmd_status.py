"""Status of an mlx5 firmware command, as the kernel log prints it: `failed, status bad parameter(0x3), ...`.

Kernel include/linux/mlx5/device.h (`MLX5_CMD_STAT_*`), drivers/net/ethernet/mellanox/mlx5/core/cmd.c (texts and errno).
The syndrome beside it is internal to the firmware: only the vendor can read it.
"""

from __future__ import annotations

from typing import Any

from rdmadiag.explain._words import number, refuse

HELP = "mlx5 firmware command status from the kernel log: 0x3, 'bad parameter'"
EXAMPLES = (("0x3",), ("bad", "parameter(0x3)"), ("limits exceeded",), ("0xf",))

# status, text, errno, meaning, causes, next
_ROWS: tuple[tuple[int, str, str | None, str, tuple[str, ...], tuple[str, ...]], ...] = (
    (0x00, "OK", None, "the command succeeded", (), ("nothing to do",)),
    (
        0x01,
        "internal error",
        "EIO",
        "the firmware failed",
        ("firmware fault",),
        ("dmesg for mlx5 health lines; collect a firmware dump; upgrade firmware",),
    ),
    (
        0x02,
        "bad operation",
        "EINVAL",
        "the firmware does not know the command or its modifier",
        ("firmware older than the driver",),
        ("upgrade the firmware",),
    ),
    (
        0x03,
        "bad parameter",
        "EINVAL",
        "a field of the command is not accepted",
        (
            "RTR2RTS_QP (0x504) and INIT2RTR_QP (0x503): a QP attribute out of range, "
            "such as retry_cnt above 7, timeout above 31, MTU or rd_atomic",
            "driver and firmware do not match",
        ),
        ("compare the attributes with rdmadiag explain qp-transition", "compare with a node that works"),
    ),
    (
        0x04,
        "bad system state",
        "EIO",
        "the device is not in a state for this command",
        ("device in reset or teardown",),
        ("dmesg for reset and health lines before it",),
    ),
    (
        0x05,
        "bad resource",
        "EINVAL",
        "the object does not exist or may not be used",
        ("ACCESS_REG (0x805) on a restricted function or VF: harmless noise of a reader", "object already destroyed"),
        ("ACCESS_REG: stop reading those registers on that function; nothing is wrong with the device",),
    ),
    (
        0x06,
        "resource busy",
        "EBUSY",
        "the object is still in use",
        ("destroyed while others refer to it",),
        ("destroy users first; on exit it is usually harmless",),
    ),
    (0x07, "FW not ready", "EAGAIN", "the firmware is not ready yet", ("early after boot or reset",), ("try again",)),
    (
        0x08,
        "limits exceeded",
        "ENOMEM",
        "a limit of the device or of this function is reached",
        ("ALLOC_UAR (0x802): too many open contexts for the device's BAR", "too many QPs, CQs or MRs"),
        (
            "ALLOC_UAR: fewer processes on the device, or enlarge the BAR (mlxconfig PF_LOG_BAR_SIZE)",
            "rdma res show: count the objects; find the process that holds them",
        ),
    ),
    (
        0x09,
        "bad resource state",
        "EINVAL",
        "the object is in the wrong state",
        ("QP moved by firmware meanwhile",),
        ("look for async events on the object before it",),
    ),
    (
        0x0A,
        "bad index",
        "EINVAL",
        "an index is out of range",
        ("port, GID or P_Key index",),
        ("check the indices used",),
    ),
    (
        0x0F,
        "no resources",
        "EAGAIN",
        "the device has no more of what was asked for",
        ("CREATE_MKEY (0x200): memory keys leaked or used up", "firmware pages not given"),
        ("rdma res show mr; end the process that leaks; reboot if none is alive",),
    ),
    (
        0x10,
        "bad QP state",
        "EINVAL",
        "the QP is not in the state that the command needs",
        ("wrong order of ibv_modify_qp", "the QP had gone to ERR"),
        ("rdmadiag explain qp-transition",),
    ),
    (
        0x30,
        "bad packet (discarded)",
        "EINVAL",
        "the management packet was discarded",
        ("malformed MAD",),
        ("check who sends MADs",),
    ),
    (
        0x40,
        "bad size too many outstanding CQEs",
        "EINVAL",
        "the CQ cannot shrink: it holds too many entries",
        ("ibv_resize_cq below what is in use",),
        ("poll the CQ first",),
    ),
    (
        0x50,
        "bad input length",
        "EIO",
        "command length does not fit",
        ("driver and firmware do not match",),
        ("compare versions",),
    ),
    (
        0x51,
        "bad output length",
        "EIO",
        "answer length does not fit",
        ("driver and firmware do not match",),
        ("compare versions",),
    ),
)


def decode(*words: str) -> dict[str, Any]:
    """Decode a status. Raises BadInput, listing the known texts, for anything else."""
    text = " ".join(words).strip()
    head, _, tail = text.partition("(")
    read = number(tail.rstrip(") ")) or number(text)
    for status, name, errno_name, meaning, causes, steps in _ROWS:
        if (read is not None and read[0] == status) or name.lower() in (text.lower(), head.strip().lower()):
            return {
                "name": name,
                "number": status,
                "meaning": meaning,
                "side": "local: firmware, driver or the caller" if status else "none",
                "causes": list(causes),
                "next": list(steps),
                "errno": errno_name,
                **({"read_as": read[1]} if read else {}),
                "sources": [
                    "kernel include/linux/mlx5/device.h (MLX5_CMD_STAT_*)",
                    "kernel drivers/net/ethernet/mellanox/mlx5/core/cmd.c (cmd_status_str, cmd_status_to_err)",
                ],
            }
    raise refuse("mlx5 command status", text, "a status such as 0x3 or its text", [row[1] for row in _ROWS])
