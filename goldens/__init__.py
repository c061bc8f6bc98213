"""Golden fixtures: responses that leaked, kept as tests. The format is described in docs/GOLDENS.md."""
