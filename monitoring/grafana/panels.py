"""The few kinds of panel that the dashboards are made of, each with the settings that it always has here.

All return the SDK's own builders, so that a dashboard can go on from them: `.span(8)`, `.thresholds(…)`.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, dashboard, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog import variants
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import Dataquery as PromqlTarget

from monitoring.grafana.sources import POSTGRES, PROMETHEUS, Built, Query, SqlTarget

_Panel = TypeVar("_Panel", timeseries.Panel, stat.Panel, statetimeline.Panel, bargauge.Panel, table.Panel)

GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "#808080"
HEIGHT: Final = 8
STAT_HEIGHT: Final = 4

DRIFT_STATES: Final[Mapping[str, tuple[str, str]]] = {
    "0": ("ok", GREEN),
    "1": ("watch", YELLOW),
    "2": ("drifted", RED),
    "3": ("idle", BLUE),
    "4": ("stale", GREY),
}
"""Values of `twincal_robot_drift_state`: word and colour."""

CONNECTION: Final[Mapping[str, tuple[str, str]]] = {"0": ("offline", RED), "1": ("online", GREEN)}


def lines(title: str, description: str, unit: str, *queries: Query) -> timeseries.Panel:
    """Numbers over time, half a row wide."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .span(12)
        .height(HEIGHT)
        .min(0)
        .line_width(1)
        .fill_opacity(8)
        .show_points(options.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(options.LegendDisplayMode.LIST)
            .placement(options.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING))
    )
    return _ask(panel, queries)


def stacked(panel: timeseries.Panel) -> timeseries.Panel:
    """The same with the series on top of one another: parts of a whole."""
    return panel.fill_opacity(40).stacking(common.StackingConfig().mode(options.StackingMode.NORMAL))


def with_limits(panel: timeseries.Panel, *steps: tuple[float, str]) -> timeseries.Panel:
    """The same with dashed lines where it begins to matter."""
    style = common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.DASHED)
    return panel.thresholds(limits(*steps)).thresholds_style(style)


def number(title: str, description: str, unit: str, query: Query) -> stat.Panel:
    """One number as it is now, an eighth of a row wide."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .span(3)
        .height(STAT_HEIGHT)
        .color_mode(options.BigValueColorMode.VALUE)
        .graph_mode(options.BigValueGraphMode.NONE)
        .justify_mode(options.BigValueJustifyMode.AUTO)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .thresholds(limits())
        .no_value("–")
    )
    return _ask(panel, (query,))


def word(title: str, description: str, query: Query) -> stat.Panel:
    """One word of a query that answers a row with a text."""
    return number(title, description, "string", query).reduce_options(
        common.ReduceDataOptions().calcs(["lastNotNull"]).fields("/.*/").values(False)
    )


def states(title: str, description: str, query: Query) -> statetimeline.Panel:
    """What state things were in, over time."""
    panel = (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .span(24)
        .height(5)
        .show_value(options.VisibilityMode.AUTO)
        .row_height(0.8)
        .merge_values(True)
        .line_width(0)
        .fill_opacity(80)
        .legend(
            common.VizLegendOptions()
            .display_mode(options.LegendDisplayMode.LIST)
            .placement(options.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    return _ask(panel, (query,))


def bars(title: str, description: str, unit: str, query: Query) -> bargauge.Panel:
    """A bar for each series as it is now."""
    panel = (
        bargauge.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .span(12)
        .height(HEIGHT)
        .min(0)
        .orientation(options.VizOrientation.HORIZONTAL)
        .display_mode(options.BarGaugeDisplayMode.BASIC)
        .show_unfilled(True)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .thresholds(limits(base=BLUE))
    )
    return _ask(panel, (query,))


@dataclass(frozen=True, slots=True)
class Column:
    """How a table shows one of its columns.

    Attributes:
        name: as the query names it.
        title: of its head; the name without one.
        unit: Grafana's, e.g. `s`.
        width: in pixels; what is left without one.
        values: words and colours of its values; the cell takes the colour.
        limits: from which value on the cell takes which colour.
        link: where a click leads; `${__value.raw}` is the cell's.
        decimals: digits behind the point.
    """

    name: str
    title: str = ""
    unit: str = ""
    width: int = 0
    values: Mapping[str, tuple[str, str]] | None = None
    limits: tuple[tuple[float, str], ...] = ()
    link: str = ""
    decimals: int | None = None

    @property
    def shown(self) -> str:
        """Its head."""
        return self.title or self.name

    def properties(self) -> list[models.DynamicConfigValue]:
        """As overrides of a panel's fields."""
        found: dict[str, object] = {}
        if self.unit:
            found["unit"] = self.unit
        if self.width:
            found["custom.width"] = self.width
        if self.decimals is not None:
            found["decimals"] = self.decimals
        if self.values is not None:
            found["mappings"] = [words(self.values)]
        if self.limits:
            found["thresholds"] = limits(*self.limits).build()
        if self.values is not None or self.limits:
            found["custom.cellOptions"] = {"type": "color-background", "mode": "basic"}
        if self.link:
            found["links"] = [{"title": "show", "url": self.link}]
        return [models.DynamicConfigValue(id_val=name, value=value) for name, value in found.items()]


def listing(title: str, description: str, columns: tuple[Column, ...], *queries: Query) -> table.Panel:
    """Rows with these columns, as wide as the page."""
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .span(24)
        .height(10)
        .show_header(True)
        .filterable(True)
        .cell_height(options.TableCellHeight.SM)
        .no_value("–")
    )
    for column in columns:
        if found := column.properties():
            panel.override_by_name(column.shown, found)
    return _ask(panel, queries)


def joined(panel: table.Panel, by: str, columns: tuple[Column, ...]) -> table.Panel:
    """The same where each column comes from a query of its own: joined by a label, named and put in order."""
    return (
        panel.with_transformation(
            models.DataTransformerConfig(id_val="joinByField", options={"byField": by, "mode": "outer"})
        )
        .with_transformation(
            models.DataTransformerConfig(
                id_val="filterFieldsByName", options={"include": {"names": [column.name for column in columns]}}
            )
        )
        .with_transformation(
            models.DataTransformerConfig(
                id_val="organize",
                options={
                    "indexByName": {column.name: index for index, column in enumerate(columns)},
                    "renameByName": {column.name: column.shown for column in columns},
                    "excludeByName": {},
                },
            )
        )
    )


def limits(*steps: tuple[float, str], base: str = GREEN) -> dashboard.ThresholdsConfig:
    """A colour from each value on."""
    found = [models.Threshold(value=None, color=base), *(models.Threshold(value=v, color=c) for v, c in steps)]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(found)


def words(values: Mapping[str, tuple[str, str]]) -> models.ValueMap:
    """Words and colours instead of numbers."""
    return models.ValueMap(
        options={
            value: models.ValueMappingResult(text=text, color=color, index=index)
            for index, (value, (text, color)) in enumerate(values.items())
        }
    )


def _ask(panel: _Panel, queries: tuple[Query, ...]) -> _Panel:
    """The panel with these queries, named A, B, C … in their order."""
    for letter, query in zip(string.ascii_uppercase, queries, strict=False):
        target = query.build()
        assert isinstance(target, SqlTarget | PromqlTarget)
        target.ref_id = letter
        panel.with_target(Built[variants.Dataquery](target))
        panel.datasource(POSTGRES if isinstance(target, SqlTarget) else PROMETHEUS)
    return panel
