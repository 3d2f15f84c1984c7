"""``cudalint lsp``: the language server. What it tells of a text is what the commands tell."""
