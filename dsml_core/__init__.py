"""Repair of DeepSeek tool-call markup that leaked into text. Knows no proxy."""
