"""Scripts that train other packages; each runs in the interpreter that has its package."""
