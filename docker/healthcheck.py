"""Exit 0 when the address answers 200, 1 otherwise; one line on why. Used by HEALTHCHECK, so standard library only."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

SECONDS = 4.0


def main(url: str) -> int:
    """Ask once.  url: http address of a program in the same container, so no proxy is asked."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=SECONDS) as answer:
            status = answer.status
    except (urllib.error.URLError, OSError) as error:
        print(f"{url}: {error}")
        return 1
    print(f"{url}: {status}")
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
