"""The pictures of the documentation, each drawn by a program from something real, so that it can be drawn again."""
