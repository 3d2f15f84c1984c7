"""From bytes to IR: source map, preprocessing, parsing, declarations, scopes and lowering."""
