"""The wire: RoCEv2 packets as tables, ICRC, captures, flows and what they say. NumPy and Scapy are imported late."""
