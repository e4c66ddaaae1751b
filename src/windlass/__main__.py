"""`python -m windlass` is the command `windlass`."""

from windlass.cli.main import main

if __name__ == "__main__":
    main()
