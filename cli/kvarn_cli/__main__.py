"""`python -m kvarn_cli` is the `kvarn` command."""

from kvarn_cli.main import main

if __name__ == "__main__":
    main()
