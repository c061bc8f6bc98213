"""Repair of DeepSeek tool-call markup that leaked into text. Knows no proxy.

`parse` and `Parser` work on text, `Repairer` on the bytes of one response.
"""

from dsml_core.events import End, Event, Rejected, Removed, Text, ToolCall
from dsml_core.parser import Parsed, Parser, parse
from dsml_core.policy import Policy
from dsml_core.stream import Repairer

__all__ = [
    "End",
    "Event",
    "Parsed",
    "Parser",
    "Policy",
    "Rejected",
    "Removed",
    "Repairer",
    "Text",
    "ToolCall",
    "parse",
]
