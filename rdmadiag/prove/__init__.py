"""Diagnosis proven by faults: each fault is put on again and again, and a judge that is not told which one must name it."""
