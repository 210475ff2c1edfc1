"""`python -m keel`: the command `keel`."""

from __future__ import annotations

from keel.cli.main import main

if __name__ == "__main__":
    main()
