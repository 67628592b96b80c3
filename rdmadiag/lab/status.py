"""What is in a lab: devices, addresses, GIDs, MTUs, and how its switch ports are shaped; read from the lab itself."""

from __future__ import annotations

import time
from typing import Any

from rdmadiag.lab import topology
from rdmadiag.lab.lab import Lab, State

# One shell, no process: reading with the shell's own `read` costs nothing in an emulated guest.
_LOOK = r"""
for d in /sys/class/infiniband/*; do
  [ -e "$d" ] || continue
  read -r state < $d/ports/1/state; gids=; n=0
  while [ $n -lt 4 ]; do
    read -r gid 2>/dev/null < $d/ports/1/gids/$n || gid=; read -r type 2>/dev/null < $d/ports/1/gid_attrs/types/$n || type=
    [ -n "$type" ] && gids="$gids $n,$gid,${type##* }"; n=$((n+1))
  done
  for net in $d/ports/1/gid_attrs/ndevs/0; do read -r dev 2>/dev/null < $net || dev=; done
  read -r mtu 2>/dev/null < /sys/class/net/$dev/mtu || mtu=0
  echo "${d##*/} ${state#*: } ${dev:--} $mtu$gids"
done
"""


def parse(text: str) -> list[dict[str, Any]]:
    """Read what the look prints: device, state, netdev, MTU, then index,gid,type for each GID."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 4 or not words[3].isdecimal():
            continue
        gids = [word.split(",") for word in words[4:] if word.count(",") == 2]
        v2 = [
            int(index) for index, gid, kind in gids if kind == "v2" and gid.startswith("0000:0000:0000:0000:0000:ffff:")
        ]
        found.append(
            {
                "device": words[0],
                "state": words[1],
                "netdev": words[2],
                "mtu": int(words[3]),
                "active_mtu": topology.active_mtu(int(words[3])),
                "gid_index": v2[0] if v2 else None,
                "gids": [{"index": int(index), "gid": gid, "type": f"RoCE {kind}"} for index, gid, kind in gids],
            }
        )
    return found


def brief(state: State) -> dict[str, Any]:
    """Return one line's worth of a lab: for lists, without asking it."""
    options = state.record.get("options", {})
    return {
        "name": state.name,
        "state": state.state,
        "backend": options.get("backend"),
        "accelerator": state.record.get("accelerator"),
        "hosts": options.get("hosts"),
        "rails": options.get("rails"),
        "kernel_per_host": options.get("kernel_per_host"),
        "namespaces": options.get("namespaces"),
        "pid": state.record.get("pid"),
        "since": state.record.get("since"),
        "up_seconds": state.record.get("up_seconds"),
        "reason": state.reason or None,
    }


def full(lab: Lab, state: State) -> dict[str, Any]:
    """Return all about a lab that is up, devices as they are now; of a guest that does not answer they are unknown. Raises LabError."""
    options, answer = lab.options, lab.request(do="ping")
    silent = any(word != "answers" for word in answer.get("guests", {}).values())
    places = [] if silent else topology.host_names(options) if options.apart else [""]
    looks = {place: parse(lab.run(["sh", "-c", _LOOK], host=place, timeout_seconds=20).text) for place in places}
    seen = {(place, one["device"]): one for place, devices in looks.items() for one in devices}
    links = []
    for link in topology.links(options):
        now = seen.get((link.host if options.apart else "", link.device), {})
        links.append(
            {
                "host": link.host,
                "netdev": link.netdev,
                "address": link.address,
                "mtu": now.get("mtu", link.mtu),
                "port": link.port,
                "bridge": link.bridge,
                "device": link.device or None,
                "state": now.get("state", "unknown" if silent else "missing") if link.device else None,
                "active_mtu": now.get("active_mtu"),
                "gid_index": now.get("gid_index"),
                "gids": now.get("gids", []),
            }
        )
    port = topology.shape(options)._asdict()
    kernel = lab.run(["uname", "-r"], host=places[0], timeout_seconds=20).text.strip() if places else None
    return {
        **brief(state),
        "kernel": kernel,
        "how": state.record.get("how"),
        "steps": state.record.get("steps"),
        "guests": answer.get("guests", {}),
        "idle_seconds": round(answer.get("idle_seconds", 0.0), 1),
        "idle_limit_seconds": options.idle_seconds,
        "age_seconds": round(time.time() - state.record.get("since", time.time())),
        "folder": options.folder or None,
        "rate_bits_per_second": port["rate"],
        "port": port,
        "links": links,
    }
