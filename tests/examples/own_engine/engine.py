"""A transfer engine such as a team has: blocks by RDMA WRITE, a TCP connection beside it that says what arrived, and recovery.

receiver: engine.py receive DEVICE GID_INDEX ADDRESS PORT
sender:   engine.py send DEVICE GID_INDEX ADDRESS PORT SECONDS

It prints lines of JSON, {"event": ...}, which is how it tells the tests what it does. Needs pyverbs (Debian: python3-pyverbs).
"""

import json
import os
import socket
import sys
import time
import zlib

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

BLOCK, DEADLINE = 256 << 10, 3.0
TIMEOUT, RETRIES = (
    16,
    3,
)  # 268 ms, four times: a path that is dead for longer is an error, and the engine connects again


def say(event, **values):
    print(json.dumps({"event": event, **values}), flush=True)


class Side:
    """One queue pair with its memory."""

    def __init__(self, context, gid_index):
        self.context, self.gid_index = context, gid_index
        self.pd, self.cq = PD(context), CQ(context, 16)
        access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
        self.mr = MR(self.pd, BLOCK, access)
        caps = QPCap(max_send_wr=8, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=caps))
        self.psn = int.from_bytes(os.urandom(3), "big")

    def about(self):
        gid = self.context.query_gid(1, self.gid_index).gid
        return {"qpn": self.qp.qp_num, "psn": self.psn, "gid": gid, "addr": self.mr.buf, "rkey": self.mr.rkey}

    def connect(self, peer):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        self.qp.to_init(attr)
        attr.path_mtu, attr.dest_qp_num, attr.rq_psn = e.IBV_MTU_4096, peer["qpn"], peer["psn"]
        attr.max_dest_rd_atomic, attr.min_rnr_timer = 1, 12
        route = GlobalRoute(dgid=GID(peer["gid"]), sgid_index=self.gid_index)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        self.qp.to_rtr(attr)
        attr.sq_psn, attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic = self.psn, TIMEOUT, RETRIES, 3, 1
        self.qp.to_rts(attr)

    def write(self, data, peer):
        """Write one block; the completion's status, None when none came in time."""
        self.mr.write(data, len(data))
        work = SendWR(1, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(self.mr.buf, len(data), self.mr.lkey)])
        work.set_wr_rdma(peer["rkey"], peer["addr"])
        self.qp.post_send(work)
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            count, completions = self.cq.poll(1)
            if count:
                return completions[0].status
            time.sleep(0.001)
        return None

    def close(self):
        for part in (self.qp, self.mr, self.cq, self.pd):
            part.close()


def tell(file, value):
    file.write(json.dumps(value) + "\n")
    file.flush()


def receive(context, gid_index, address, port):
    door = socket.create_server((address, port))
    say("ready")
    while True:
        connection, _ = door.accept()
        side = Side(context, gid_index)
        with connection, connection.makefile("rw") as file:
            for line in file:
                said = json.loads(line)
                if "qpn" in said:
                    side.connect(said)
                    tell(file, side.about())
                else:
                    right = zlib.crc32(side.mr.read(BLOCK, 0)) == said["crc"]
                    say("verified", bytes=BLOCK, blocks=1, wrong=int(not right))
                    tell(file, {"right": right})
        side.close()


def send(context, gid_index, address, port, seconds):
    end, sent, failed_at = None, 0, None
    while end is None or time.monotonic() < end:
        side = Side(context, gid_index)
        try:
            with socket.create_connection((address, port), DEADLINE) as connection, connection.makefile("rw") as file:
                tell(file, side.about())
                peer = json.loads(file.readline())
                side.connect(peer)
                if end is None:
                    end = time.monotonic() + seconds
                    say("ready")
                while time.monotonic() < end:
                    data = os.urandom(BLOCK)
                    status = side.write(data, peer)
                    if status != e.IBV_WC_SUCCESS:
                        failed_at = failed_at or time.monotonic()
                        say("error", words="a block did not go through", status=status)
                        break
                    tell(file, {"crc": zlib.crc32(data)})
                    if not json.loads(file.readline())["right"]:
                        say("error", words="a block arrived with other content", status=None)
                    sent += len(data)
                    say("progress", bytes=sent)
                    if failed_at:
                        say("recovered", seconds=round(time.monotonic() - failed_at, 3))
                        failed_at = None
        except OSError as error:
            say("error", words=str(error), status=None)
        side.close()
        if end is None or time.monotonic() < end:
            say("reconnect", why="the block is sent again on a new queue pair")
            time.sleep(0.1)


if __name__ == "__main__":
    role, device, gid_index, address, port, *rest = sys.argv[1:]
    with Context(name=device) as context:
        if role == "receive":
            receive(context, int(gid_index), address, int(port))
        else:
            send(context, int(gid_index), address, int(port), float(rest[0]))
