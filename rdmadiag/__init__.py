"""Fault injection and diagnostics for RDMA clusters that move LLM KV caches."""

__version__ = "0.1.0"
