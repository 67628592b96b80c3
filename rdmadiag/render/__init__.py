"""Output formats of reports: one file each, `render(report, terminal, width) -> str`; the file name is the `--format` word."""
