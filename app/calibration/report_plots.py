"""Drawings of the report: one joint on one log, measured and simulated above, what is left over below.

Matplotlib draws and writes SVG; here that SVG is made fit for a page that holds many: no ids that clash, no metadata,
no needless decimals, and colours that are the page's own variables, so that one drawing serves light, dark and paper.
No text of the user's enters a drawing.
"""

from __future__ import annotations

import io
import math
import re
import threading
from typing import Any, Final, cast

import matplotlib as mpl
import numpy as np
from lxml import etree
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.typing import RcKeyType

from app.calibration.report_data import Horizon
from app.calibration.report_horizon import mean_over_joints
from app.calibration.report_runs import Trace, envelope, worst_moment
from app.calibration.report_words import Unit
from app.telemetry import FloatArray

# Stand-ins that come back out of Matplotlib and become variables of the page.
_INK, _MUTED, _MEASURED = "#000001", "#000002", "#000003"
_CALIBRATED, _NOMINAL, _COMMAND, _SHADE = "#000004", "#000005", "#000006", "#000007"
_VARIABLES: Final = {
    _INK: "var(--ink)",
    _MUTED: "var(--rule)",
    _MEASURED: "var(--measured)",
    _CALIBRATED: "var(--calibrated)",
    _NOMINAL: "var(--nominal)",
    _COMMAND: "var(--command)",
    _SHADE: "var(--shade)",
}
_STYLE: Final[dict[RcKeyType, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "twincal",
    "font.family": ["DejaVu Sans"],
    "font.size": 8.0,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-4, 5),
    "axes.unicode_minus": True,
    "path.simplify": True,
}
_DRAWING = threading.Lock()
"""Matplotlib's settings are the process's, not the figure's."""

_WIDTH_IN, _HEIGHT_IN = 10.0, 2.7
_ZOOM_FROM_S = 4.0
"""Shorter runs show every detail as they are."""
_REFERENCED = re.compile(r"url\(#([^)]+)\)")
_DECIMALS = re.compile(r"-?\d+\.\d{3,}")
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"


def draw_trace(trace: Trace, unit: Unit, points: int, key: str) -> Markup:
    """Draw one joint on one log as inline SVG.

    Args:
        trace: what to draw; something in it was measured.
        unit: of the joint.
        points: how many points a line may have.
        key: unique on the page, letters and digits; prefixes the drawing's ids.
    """
    with _DRAWING, mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), layout=None)
        figure.patch.set_visible(False)
        duration = float(trace.t_s[-1] - trace.t_s[0])
        if duration > _ZOOM_FROM_S:
            moment = worst_moment(trace, min(3.0, max(1.0, 0.06 * duration)))
            grid = figure.add_gridspec(2, 2, height_ratios=(2.3, 1), width_ratios=(2.6, 1), **_MARGINS)
            _draw_column(figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0]), trace, unit, points)
            for axes in figure.axes:
                axes.axvspan(*moment, color=_SHADE, linewidth=0)
            near = _cut(trace, *moment)
            _draw_column(figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1]), near, unit, points)
            figure.axes[2].set_title(f"the worst {moment[1] - moment[0]:.1f} s", **_TITLE)
        else:
            grid = figure.add_gridspec(2, 1, height_ratios=(2.3, 1), **_MARGINS)
            _draw_column(figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0]), trace, unit, points)
        figure.axes[0].set_ylabel(f"position [{unit.base}]", color=_INK)
        figure.axes[1].set_ylabel(f"error [{unit.name}]", color=_INK)
        figure.align_ylabels(figure.axes[:2])
        return _saved(figure, key)


def draw_horizon(horizon: Horizon, unit: Unit, key: str) -> Markup:
    """Draw errors against the time since a run's start, on a logarithmic axis, as inline SVG.

    Args:
        horizon: each joint thin, their mean thick.
        unit: of the mean.
        key: unique on the page; prefixes the drawing's ids.
    """
    with _DRAWING, mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), layout=None)
        figure.patch.set_visible(False)
        axes = figure.add_axes((0.07, 0.17, 0.915, 0.78))
        axes.set_yscale("log")
        for errors, color, dashes in (
            (horizon.nominal, _NOMINAL, (0, (4, 1.6))),
            (horizon.calibrated, _CALIBRATED, "solid"),
        ):
            shown = 1e3 * np.maximum(errors, 1e-9)
            axes.plot(horizon.t_s, shown, color=color, linewidth=0.6, alpha=0.45, linestyle=dashes)
            axes.plot(horizon.t_s, mean_over_joints(shown), color=color, linewidth=2.2, linestyle=dashes)
        _dress(axes, horizon.t_s)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.tick_params(which="minor", color=_MUTED, length=1.5, labelleft=False)
        axes.set_xlim(0.0, horizon.window_s)
        axes.set_xlabel("time since the run's start [s]", color=_INK)
        axes.set_ylabel(f"RMS error [{unit.name}]", color=_INK)
        return _saved(figure, key)


def _saved(figure: Figure, key: str) -> Markup:
    file = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(file, format="svg", metadata=nothing)
    return _embed(file.getvalue(), key)


_MARGINS: Final = {"left": 0.07, "right": 0.985, "top": 0.93, "bottom": 0.15, "hspace": 0.1, "wspace": 0.13}
_TITLE: Final[dict[str, Any]] = {"fontsize": 8.0, "color": _INK, "pad": 4.0}


def _cut(trace: Trace, begin_s: float, end_s: float) -> Trace:
    rows = (trace.t_s >= begin_s) & (trace.t_s <= end_s)
    return Trace(
        trace.log,
        trace.t_s[rows],
        trace.measured[rows],
        trace.calibrated[rows],
        trace.nominal[rows],
        trace.command[rows],
        trace.errors,
    )


def _draw_column(above: Axes, below: Axes, trace: Trace, unit: Unit, points: int) -> None:
    low, high = _position_limits(trace)
    reach = high - low
    lines: tuple[tuple[FloatArray, dict[str, Any]], ...] = (
        (trace.command, {"color": _COMMAND, "linewidth": 0.8, "linestyle": (0, (1, 1.2)), "zorder": 2}),
        (trace.nominal, {"color": _NOMINAL, "linewidth": 0.9, "linestyle": (0, (4, 1.6)), "zorder": 3}),
        (trace.measured, {"color": _MEASURED, "linewidth": 2.6, "alpha": 0.45, "zorder": 4}),
        (trace.calibrated, {"color": _CALIBRATED, "linewidth": 1.0, "zorder": 5}),
    )
    for values, style in lines:
        if np.isfinite(values).any():
            # a twin that ran away leaves the picture, not the range of what can be drawn
            above.plot(*envelope(trace.t_s, np.clip(values, low - reach, high + reach), points), **style)
    above.set_ylim(low, high)
    calibrated, nominal = (1e3 * (values - trace.measured) for values in (trace.calibrated, trace.nominal))
    limit = _error_limit(calibrated, nominal)
    below.axhline(0.0, color=_INK, linewidth=0.6, zorder=1)
    for values, style in ((nominal, lines[1][1]), (calibrated, lines[3][1])):
        if np.isfinite(values).any():
            below.plot(*envelope(trace.t_s, np.clip(values, -3 * limit, 3 * limit), points), **style)
    below.set_ylim(-limit, limit)
    for axes in (above, below):
        _dress(axes, trace.t_s)
    above.tick_params(labelbottom=False)
    below.locator_params(axis="y", nbins=3)
    below.set_xlabel("time since the log's first row [s]", color=_INK)


def _dress(axes: Axes, t_s: FloatArray) -> None:
    axes.patch.set_visible(False)
    axes.grid(visible=True, color=_MUTED, linewidth=0.4)
    axes.set_axisbelow(True)
    axes.tick_params(color=_MUTED, labelcolor=_INK, length=2.5, width=0.5, pad=2.5)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_MUTED)
        spine.set_linewidth(0.6)
    begin, end = float(t_s[0]), float(t_s[-1])
    axes.set_xlim(begin, end if end > begin else begin + 1e-3)


def _position_limits(trace: Trace) -> tuple[float, float]:
    """Around what was measured and asked for; the twins may leave it."""
    known = np.concatenate([trace.measured, trace.command])
    known = known[np.isfinite(known)]
    if not known.size:
        known = np.zeros(1)
    low, high = float(known.min()), float(known.max())
    pad = max(0.12 * (high - low), 1e-3)
    return low - pad, high + pad


def _error_limit(calibrated: FloatArray, nominal: FloatArray) -> float:
    """What the strip shows: all of the calibrated error, and of the nominal one what doesn't drown it."""
    own, other = (np.abs(values[np.isfinite(values)]) for values in (calibrated, nominal))
    limit = 1.1 * float(np.quantile(own, 0.999)) if own.size else 0.0
    common = 1.1 * float(np.quantile(other, 0.95)) if other.size else 0.0
    if common < 4.0 * limit:
        limit = max(limit, common)
    return limit if math.isfinite(limit) and limit > 0.0 else 1.0


def _embed(svg: bytes, key: str) -> Markup:
    root = etree.fromstring(svg, etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True))
    for metadata in root.findall(f"{_SVG}metadata"):
        root.remove(metadata)
    used = {name for element in root.iter() for name in _references(element)}
    for element in root.iter():
        _own(element, key, used)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, "")
    root.set("class", "plot")
    root.set("aria-hidden", "true")
    etree.cleanup_namespaces(root)
    text = etree.tostring(root, encoding="unicode").replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)
    for stand_in, variable in _VARIABLES.items():
        text = text.replace(stand_in, variable)
    # Matplotlib's own SVG, without a word of the user's.
    return Markup(text)  # noqa: S704


def _references(element: etree._Element) -> list[str]:
    link = element.get(_LINK, "")
    return [link[1:]] * bool(link) + [name for _, value in _attributes(element) for name in _REFERENCED.findall(value)]


def _attributes(element: etree._Element) -> list[tuple[str, str]]:
    # lxml gives str for a document it parsed; its stubs also allow the bytes one may set.
    return cast("list[tuple[str, str]]", list(element.attrib.items()))


def _own(element: etree._Element, key: str, used: set[str]) -> None:
    """Give an element ids of its own and drop what says nothing."""
    for name, value in _attributes(element):
        if name == "id":
            if value in used:
                element.set("id", f"{key}-{value}")
            else:
                del element.attrib["id"]
        elif name == _LINK:
            del element.attrib[name]
            element.set("href", f"#{key}-{value[1:]}")
        elif name == "d":
            element.set("d", " ".join(_DECIMALS.sub(_rounded, value).split()))
        else:
            element.set(name, _REFERENCED.sub(rf"url(#{key}-\1)", value))


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match.group()):.2f}"
