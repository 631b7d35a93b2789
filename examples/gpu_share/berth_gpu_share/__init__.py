"""Shares of GPUs for berth: see `berth_gpu_share.plugin`."""

from berth_gpu_share.plugin import GpuShare

__all__ = ["GpuShare"]
