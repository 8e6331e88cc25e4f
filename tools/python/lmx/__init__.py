"""lmx, a program that trains language models from recipes."""
