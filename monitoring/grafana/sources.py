"""Where panels' numbers come from: Prometheus for what is now and how often, Postgres for what is of one robot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.cog import builder as cog
from grafana_foundation_sdk.cog import variants
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

POSTGRES_TYPE: Final = "grafana-postgresql-datasource"
PROMETHEUS: Final = models.DataSourceRef(type_val="prometheus", uid="${prometheus}")
POSTGRES: Final = models.DataSourceRef(type_val=POSTGRES_TYPE, uid="${postgres}")

SOURCES: Final = (
    builders.DatasourceVariable("prometheus").label("Prometheus").type("prometheus"),
    builders.DatasourceVariable("postgres").label("Postgres").type(POSTGRES_TYPE),
)
"""Variables that every dashboard begins with: which datasources it reads."""

Query = cog.Builder[variants.Dataquery]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Built(cog.Builder[_T]):
    """What is ready already, where the SDK asks for something to build."""

    target: _T

    def build(self) -> _T:
        """The very thing."""
        return self.target


def over_time(expression: str, legend: str = "") -> prometheus.Dataquery:
    """PromQL along the dashboard's time range; rates take `$__rate_interval`."""
    return _promql(expression).range().legend_format(legend)


def now(expression: str, legend: str = "") -> prometheus.Dataquery:
    """PromQL at the end of the range."""
    return _promql(expression).instant().legend_format(legend)


def as_table(expression: str) -> prometheus.Dataquery:
    """PromQL at the end of the range, a row a series and a column a label."""
    return now(expression).format(PromQueryFormat.TABLE)


def _promql(expression: str) -> prometheus.Dataquery:
    query = prometheus.Dataquery().datasource(PROMETHEUS).editor_mode(QueryEditorMode.CODE)
    return query.expr(" ".join(expression.split()))


def label_values(metric: str, label: str) -> dict[str, object]:
    """The values of a label, for a variable, as Grafana's own editor saves it."""
    return {
        "qryType": 1,
        "query": f"label_values({metric}, {label})",
        "refId": "PrometheusVariableQueryEditor-VariableQuery",
    }


@dataclass
class SqlTarget(variants.Dataquery):
    """A query of Grafana's Postgres datasource, which the SDK has no type for."""

    sql: str
    format: str
    ref_id: str = ""

    def to_json(self) -> dict[str, object]:
        """As Grafana's own editor saves it."""
        return {
            "datasource": POSTGRES,
            "editorMode": "code",
            "format": self.format,
            "rawQuery": True,
            "rawSql": " ".join(self.sql.split()),
            "refId": self.ref_id,
        }


@dataclass(frozen=True)
class _Sql(cog.Builder[variants.Dataquery]):
    sql: str
    format: str

    def build(self) -> SqlTarget:
        return SqlTarget(self.sql, self.format)


def rows(sql: str) -> Query:
    """SQL whose rows are a table's."""
    return _Sql(sql, "table")


def series(sql: str) -> Query:
    """SQL that gives `time`, `metric` (the series' name) and `value`, in order of time."""
    return _Sql(sql, "time_series")


class SqlAnnotationTarget(models.AnnotationTarget):
    """An annotation's SQL: `time`, optionally `timeend`, `text` and `tags`."""

    def __init__(self, sql: str) -> None:
        super().__init__()
        self._target = SqlTarget(sql, "table", "Anno")

    def to_json(self) -> dict[str, object]:
        """The query alone: limits are in the SQL."""
        return self._target.to_json()


def annotation(name: str, color: str, sql: str) -> builders.AnnotationQuery:
    """Marks on every panel's time axis, from Postgres."""
    query = builders.AnnotationQuery().name(name).datasource(POSTGRES).enable(True).icon_color(color)
    return query.target(Built[models.AnnotationTarget](SqlAnnotationTarget(sql)))
