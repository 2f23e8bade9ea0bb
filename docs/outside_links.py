"""Turn links to files outside docs/ into plain names on the site, which holds the pages alone."""

import posixpath
import re

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def on_page_markdown(markdown: str, page: object, **_: object) -> str:
    """Return the page with its links out of docs/ replaced; mkdocs calls this for each page."""
    folder = posixpath.dirname(page.file.src_uri)  # type: ignore[attr-defined]

    def plain(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2].partition("#")[0]))
        return f"{match[1]} (`{target[3:]}`)" if target.startswith("../") else match[0]

    return LINK.sub(plain, markdown)
