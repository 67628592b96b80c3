"""RDMA verbs: endpoints as context managers, the RC QP life cycle, exchange of connection data, asynchronous events.

`Device`, `Pd`, `Cq`, `Mr` and `Qp` are what the verbs API calls them; `Endpoint` puts them together. pyverbs is
imported when the first device is opened (`library`).
"""
