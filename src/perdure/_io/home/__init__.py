"""The runtime's own files. `paths` in `~/.perdure`, the `keys` there, and `runtime_files`, which no tool may touch."""
