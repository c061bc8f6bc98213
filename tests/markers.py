"""Markers for tests, built at run time: a literal one in a file could be executed by a harness that reads it."""

BAR = chr(0xFF5C)
WORD = "DS" + "ML"
MARK = BAR + WORD + BAR
EOS = f"<{BAR}end{chr(0x2581)}of{chr(0x2581)}sentence{BAR}>"


def live(text: str) -> str:
    """`text` with `{M}` replaced by the canonical marker and `{B}` by the full-width bar."""
    return text.replace("{M}", MARK).replace("{B}", BAR)
