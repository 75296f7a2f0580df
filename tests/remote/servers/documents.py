"""XML documents, as the stores send and receive them."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.sax.saxutils import escape


def xml(root: str, *children: str) -> bytes:
    """A document of one element with the children given."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}>{"".join(children)}</{root.split()[0]}>'.encode()


def element(name: str, *content: object) -> str:
    """`element("Key", "a<b")` is `<Key>a&lt;b</Key>`."""
    return f"<{name}>{''.join(escape(str(part)) for part in content)}</{name}>"


def children(document: bytes, name: str) -> list[ElementTree.Element]:
    """The elements of a name, in whatever namespace."""
    return [child for child in ElementTree.fromstring(document) if child.tag.rpartition("}")[2] == name]


def text_of(parent: ElementTree.Element, name: str) -> str:
    return next((child.text or "" for child in parent if child.tag.rpartition("}")[2] == name), "")
