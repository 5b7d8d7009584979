"""Reading a URDF's bytes as XML: refuses everything that is not one plain, expanded URDF, and names the line."""

from __future__ import annotations

import math
import re
from typing import Final, cast

import numpy as np
from lxml import etree

from app.errors import DescriptionError
from app.telemetry import FloatArray

Element = etree._Element  # noqa: SLF001 - lxml's stubs offer no public name for the class

MAX_BYTES: Final = 10 * 1024 * 1024
"""A URDF is text without meshes: the largest humanoids stay below 1 MB."""

_BOM: Final = b"\xef\xbb\xbf"
# Possessive, so that a hostile prolog can't make it backtrack.
_DOCTYPE: Final = re.compile(r"(?:\s++|<\?(?>.*?\?>)|<!--(?>.*?-->))*+<!DOCTYPE", re.DOTALL)
# Says nothing we don't know: the encoding was checked, and much that PyBullet reads claims to be XML "0.0".
_DECLARATION: Final = re.compile(rb"\A(?:\xef\xbb\xbf)?<\?xml\s[^<>]*\?>")
_XACRO_TEXT: Final = ("${", "$(")
_OTHER_FORMATS: Final = {"sdf": "SDF", "mujoco": "MJCF (MuJoCo)", "COLLADA": "COLLADA", "launch": "a ROS launch file"}


def read_robot_element(source: bytes) -> Element:
    """Parse the bytes and return the `<robot>` element.

    No entity is expanded, no DTD read and nothing fetched.

    Raises:
        DescriptionError: naming the line.
    """
    _refuse_unsuitable_bytes(source)
    parser = etree.XMLParser(
        encoding="utf-8",  # checked above; a wrong encoding in the XML declaration changes nothing
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
        huge_tree=False,
    )
    try:
        root = etree.fromstring(_DECLARATION.sub(_blank, source), parser)
    except etree.XMLSyntaxError as error:
        problem = str(error.msg).split(", line ", 1)[0]
        raise DescriptionError(f"line {error.lineno or 1}", f"not well-formed XML: {problem}") from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise DescriptionError("line 1", "holds a DOCTYPE", "a URDF needs none; remove it")
    _refuse_xacro(root)
    if root.tag != "robot":
        found = _OTHER_FORMATS.get(str(root.tag))
        problem = f"this is {found}, not URDF" if found else f"the root element is <{root.tag}>"
        raise DescriptionError(f"line {root.sourceline}", problem, "a URDF's root element is <robot>")
    return root


def _blank(declaration: re.Match[bytes]) -> bytes:
    """As many lines of nothing, so that errors name the right one."""
    return b"\n" * declaration[0].count(b"\n")


def _refuse_unsuitable_bytes(source: bytes) -> None:
    """Checks that need no XML parser, so that nothing hostile reaches it."""
    if len(source) > MAX_BYTES:
        raise DescriptionError("file", f"{len(source)} bytes", f"at most {MAX_BYTES}; meshes don't belong into it")
    if not source.strip():
        raise DescriptionError("file", "is empty", "expected a URDF")
    try:
        text = source.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise DescriptionError(
            f"line {line}", f"byte 0x{source[error.start]:02x} is not UTF-8", "save as UTF-8"
        ) from error
    if text.startswith("#usda"):
        raise DescriptionError("line 1", "this is USD, not URDF", "a URDF's root element is <robot>")
    doctype = _DOCTYPE.match(text)
    if doctype is not None:
        line = text.count("\n", 0, doctype.end()) + 1
        raise DescriptionError(
            f"line {line}", "holds a DOCTYPE", "a URDF needs none and entities are refused; remove it"
        )


def _refuse_xacro(root: Element) -> None:
    """PyBullet loads a leftover `${mass}` as mass 0: refuse whatever is not expanded."""
    for element in root.iter():
        if not isinstance(element.tag, str):  # an entity reference
            raise DescriptionError(f"line {element.sourceline}", "holds an entity reference", "write its text")
        leftover = f"<{element.tag}>" if _is_xacro(element) else _xacro_text(element)
        if leftover:
            raise DescriptionError(f"line {element.sourceline}", f"{leftover} is xacro", "expand with xacro first")


def _is_xacro(element: Element) -> bool:
    return element.prefix == "xacro" or str(element.tag).startswith("xacro:") or "/xacro}" in str(element.tag)


def _xacro_text(element: Element) -> str | None:
    values = [str(value) for value in element.attrib.values()] + [element.text or "", element.tail or ""]
    for value in values:
        if any(mark in value for mark in _XACRO_TEXT):
            return repr(value.strip())
    return None


def line_of(element: Element) -> int:
    """The line an element begins on."""
    return cast("int", element.sourceline)


def child(element: Element, tag: str, where: str) -> Element | None:
    """The only child of that tag, or None.

    Raises:
        DescriptionError: if there are several.
    """
    found = element.findall(tag)
    if len(found) > 1:
        raise DescriptionError(f"{where} (line {found[1].sourceline})", f"has {len(found)} <{tag}> elements", "one")
    return found[0] if found else None


def name_of(element: Element) -> str:
    """The `name` attribute, verbatim.

    Raises:
        DescriptionError: where it is missing or empty.
    """
    name = element.get("name")
    if not name:
        raise DescriptionError(f"line {element.sourceline}", f"<{element.tag}> without a name")
    return str(name)


def number(element: Element, attribute: str, where: str, default: float | None = None) -> float:
    """A finite number from an attribute.

    Raises:
        DescriptionError: where it is missing without a default, not a number or not finite.
    """
    text = element.get(attribute)
    if text is None:
        if default is None:
            raise DescriptionError(_at(where, element), f"<{element.tag}> has no {attribute}")
        return default
    return _finite(str(text), element, attribute, where)


def limit_value(element: Element, attribute: str, where: str, default: float) -> float:
    """A limit from an attribute; "inf" says that there is none.

    Raises:
        DescriptionError: where it is not a number.
    """
    text = str(element.get(attribute, default)).strip()
    if text.lower().lstrip("+-") in ("inf", "infinity"):
        return float(text)
    return _finite(text, element, attribute, where)


def vector(element: Element | None, attribute: str, where: str) -> FloatArray:
    """Three finite numbers from an attribute; zeros where the element or the attribute is missing, as URDF says.

    Raises:
        DescriptionError: where they are not three finite numbers.
    """
    text = None if element is None else element.get(attribute)
    if element is None or text is None:
        return np.zeros(3)
    parts = str(text).split()
    if len(parts) != 3:
        raise DescriptionError(_at(where, element), f"{attribute}={text!r}", "three numbers")
    return np.array([_finite(part, element, attribute, where) for part in parts])


def _finite(text: str, element: Element, attribute: str, where: str) -> float:
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DescriptionError(_at(where, element), f"<{element.tag}> {attribute}={text!r}", "a finite number")
    return value


def _at(where: str, element: Element) -> str:
    return f"{where} (line {element.sourceline})"
