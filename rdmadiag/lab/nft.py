"""libnftables by ctypes, in this process: a table with `flags owner` lives as long as the netlink socket of this context.

libnftables(3). The library is loaded when the first context is made.
"""

from __future__ import annotations

import ctypes

from rdmadiag.errors import HostRefused, NotPresent

_LIBRARY = "libnftables.so.1"


class Nft:
    """One context, with its netlink socket."""

    def __init__(self) -> None:
        """Raise NotPresent where the library is not installed."""
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise NotPresent(f"{_LIBRARY} cannot be loaded ({error}); install nftables") from error
        for name, result, arguments in (
            ("nft_ctx_new", ctypes.c_void_p, [ctypes.c_uint32]),
            ("nft_ctx_buffer_output", ctypes.c_int, [ctypes.c_void_p]),
            ("nft_ctx_buffer_error", ctypes.c_int, [ctypes.c_void_p]),
            ("nft_ctx_get_output_buffer", ctypes.c_char_p, [ctypes.c_void_p]),
            ("nft_ctx_get_error_buffer", ctypes.c_char_p, [ctypes.c_void_p]),
            ("nft_run_cmd_from_buffer", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
        ):
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
        self._context = self._library.nft_ctx_new(0)
        self._library.nft_ctx_buffer_output(self._context)
        self._library.nft_ctx_buffer_error(self._context)

    def run(self, commands: str) -> str:
        """Run commands as one transaction and return what they print. Raises HostRefused with what nft said."""
        code = self._library.nft_run_cmd_from_buffer(self._context, commands.encode())
        said = (self._library.nft_ctx_get_error_buffer(self._context) or b"").decode(errors="replace")
        printed = (self._library.nft_ctx_get_output_buffer(self._context) or b"").decode(errors="replace")
        if code:
            raise HostRefused(
                "nftables", " ".join(said.split())[:500] or f"code {code}", "root, and a kernel with nf_tables"
            )
        return printed
