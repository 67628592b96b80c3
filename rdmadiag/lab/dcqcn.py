"""DCQCN as published: when a receiver answers CE marks with a CNP, and how a sender cuts its rate and recovers it.

Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015 (increase as in QCN, IEEE 802.1Qau-2010).
Pure arithmetic over times that the caller gives; the process that acts by it is rdmadiag.lab.dcqcn_agent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Parameters:
    """Times in seconds, rates in bit/s. `line` is the rate for which the others were chosen.

    `g` weighs alpha's updates; `cnp` is the least time between two CNPs of a flow (N in the paper), `decay` the time without a CNP after
    which alpha shrinks (K), `timer` and `bytes` are the two counters that raise the rate (T, B), `stages` how many expirations fast
    recovery lasts (F); `additive` and `hyper` what the target rate gains by each increase; below `least` no rate is cut.
    """

    g: float = 1 / 256
    cnp: float = 50e-6
    decay: float = 55e-6
    timer: float = 55e-6
    bytes: float = 10e6
    stages: int = 5
    additive: float = 40e6
    hyper: float = 400e6
    least: float = 400e6
    line: float = 40e9

    def scaled(self, line: float, slower: float) -> Parameters:
        """Return the same shape at another line rate and with all times longer by a factor: what an emulated host can follow."""
        rate = line / self.line
        return replace(
            self,
            cnp=self.cnp * slower,
            decay=self.decay * slower,
            timer=self.timer * slower,
            bytes=self.bytes * rate * slower,
            additive=self.additive * rate,
            hyper=self.hyper * rate,
            least=self.least * rate,
            line=line,
        )


PAPER = Parameters()
"""The paper's own, for 40 Gbit/s. It gives no hyper increase (here ten times the additive one, as in QCN) and no least rate (here 1 %)."""

ADAPTER = Parameters(
    g=5 / 1024, cnp=4e-6, decay=1e-6, timer=300e-6, bytes=32767 * 64, stages=1, additive=5e6, hyper=50e6, least=1e6, line=100e9
)  # fmt: skip
"""Defaults of ConnectX firmware (NVIDIA, DCQCN parameters: DCE_TCP_G 1019 of 1024, DCE_TCP_RTT 1 us, RPG_TIME_RESET 300 us, RPG_BYTE_RESET
32767 taken as units of 64 bytes, RPG_THRESHOLD 1, RPG_AI_RATE 5 and RPG_HAI_RATE 50 Mb/s, RPG_MIN_RATE 1 Mb/s), at 100 Gbit/s; for the time
between two CNPs its period between two cuts is taken (RATE_REDUCE_MONITOR_PERIOD 4 us)."""

SETS = {"paper": PAPER, "adapter": ADAPTER}


class NotificationPoint:
    """The receiver: which marked packets are answered with a CNP."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self._sent: dict[int, float] = {}

    def marked(self, flow: int, now: float) -> bool:
        """Take note of a CE mark; return whether a CNP is due: at once, but not sooner than `cnp` after the flow's last."""
        last = self._sent.get(flow)
        if last is not None and now - last < self.parameters.cnp:
            return False
        self._sent[flow] = now
        return True


class ReactionPoint:
    """The sender's side of one flow: `rate` at which it sends, `target` to which it recovers [bit/s], alpha, the stages of its counters."""

    def __init__(self, parameters: Parameters, now: float) -> None:
        self.parameters = parameters
        self.rate = self.target = parameters.line
        self._alpha, self._alpha_at = 1.0, now
        self.timer_stage = self.byte_stage = 0
        self._timer_at = now
        self._bytes = 0.0

    def alpha(self, now: float) -> float:
        """Return alpha as it is now: (1 - g) times what it was for each `decay` that passed without a CNP (equation 2)."""
        periods = int((now - self._alpha_at) / self.parameters.decay * (1 + 1e-12))
        return float(self._alpha * (1 - self.parameters.g) ** max(periods, 0))

    def cnp(self, now: float) -> None:
        """Cut the rate by alpha / 2, and begin to recover anew (equation 1)."""
        p, alpha = self.parameters, self.alpha(now)
        self.target = self.rate
        self.rate = max(self.rate * (1 - alpha / 2), p.least)
        self._alpha, self._alpha_at = (1 - p.g) * alpha + p.g, now
        self.timer_stage = self.byte_stage = 0
        self._timer_at, self._bytes = now, 0.0

    def due(self) -> float | None:
        """Return when the timer expires next; None at line rate, where nothing is left to recover."""
        return None if self.rate >= self.parameters.line else self._timer_at + self.parameters.timer

    def go_on(self, now: float, sent: float) -> float:
        """Let time pass until `now`, in which so many bytes were sent; return the rate."""
        p = self.parameters
        while (due := self.due()) is not None and due <= now:
            self._timer_at = due
            self.timer_stage += 1
            self._increase()
        self._bytes += sent
        while self._bytes >= p.bytes:
            self._bytes -= p.bytes
            self.byte_stage += 1
            self._increase()
        return self.rate

    def _increase(self) -> None:
        # Fast recovery while neither counter has passed `stages` (equation 3), hyper increase when both have, else additive (equation 4).
        p, beyond = self.parameters, min(self.timer_stage, self.byte_stage) - self.parameters.stages
        if beyond > 0:
            self.target += beyond * p.hyper
        elif max(self.timer_stage, self.byte_stage) > p.stages:
            self.target += p.additive
        self.target = min(self.target, p.line)
        self.rate = min((self.target + self.rate) / 2, p.line)
        if self.rate >= p.line * 0.999:  # halving never arrives
            self.rate = self.target = p.line
