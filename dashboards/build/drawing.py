"""How panels and boards become Grafana's own model; nothing else here knows its library."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.build.panels import Ask, Board, Panel, Row, Variable

Drawn = stat.Panel | timeseries.Panel | bargauge.Panel | table.Panel
SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "headrace"
PLAIN = ((None, "text"),)


def board(said: Board) -> model.Dashboard:
    """Draw a dashboard. Panels have ids in the order in which they are read."""
    drawn = (
        dashboard.Dashboard(said.title)
        .uid(said.uid)
        .description(said.description)
        .tags([TAG])
        .timezone("utc")
        .time(f"now-{said.span}", "now")
        .refresh("1m")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(_others())
        .annotation(_reloads())
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Source").type("prometheus")
        )
    )
    for variable in said.variables:
        drawn.with_variable(_variable(variable))
    number = 0
    for row in said.rows:
        number = _row(drawn, row, number)
    return drawn.build()


def _row(drawn: dashboard.Dashboard, row: Row, number: int) -> int:
    drawn.with_row(dashboard.Row(row.title).id(number := number + 1))
    for said in row.panels:
        drawn.with_panel(panel(said).id(number := number + 1))
    return number


def panel(said: Panel) -> Drawn:
    drawn = _shaped(said)
    drawn.title(said.title).description(said.question).unit(said.unit).datasource(SOURCE)
    drawn.span(said.width).height(said.height).thresholds(_thresholds(said.steps or PLAIN))
    drawn.targets([_target(said, ask, number) for number, ask in enumerate(said.asks)])
    if said.most is not None:
        drawn.min(0).max(said.most)
    if said.decimals is not None:
        drawn.decimals(said.decimals)
    if said.since is not None:
        drawn.time_from(said.since)
    if said.words:
        drawn.mappings([_words(said)])
    return drawn


def _shaped(said: Panel) -> Drawn:
    match said.shape:
        case "stat":
            return _stat(said)
        case "bars":
            return _bars()
        case "table":
            return _table(said)
        case "lines" | "stacked":
            return _lines(said)


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def _stat(said: Panel) -> stat.Panel:
    mode = (
        shapes.BigValueColorMode.VALUE
        if said.steps or said.words
        else shapes.BigValueColorMode.NONE
    )
    return (
        stat.Panel()
        .reduce_options(_last())
        .graph_mode(shapes.BigValueGraphMode.NONE)
        .color_mode(mode)
        .text_mode(shapes.BigValueTextMode.AUTO)
        .justify_mode(shapes.BigValueJustifyMode.AUTO)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    )


def _bars() -> bargauge.Panel:
    return (
        bargauge.Panel()
        .reduce_options(_last())
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .display_mode(shapes.BarGaugeDisplayMode.BASIC)
        .value_mode(shapes.BarGaugeValueMode.TEXT)
        .show_unfilled(True)
        .text(common.VizTextDisplayOptions().title_size(13).value_size(16))
        .min(0)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
    )


def _lines(said: Panel) -> timeseries.Panel:
    stacked = said.shape == "stacked"
    mode = shapes.StackingMode.NORMAL if stacked else shapes.StackingMode.NONE
    legend = (
        common.VizLegendOptions()
        .display_mode(shapes.LegendDisplayMode.LIST)
        .placement(shapes.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs([])
    )
    return (
        timeseries.Panel()
        .line_width(1)
        .fill_opacity(35 if stacked else 8)
        .stacking(common.StackingConfig().mode(mode).group("A"))
        .show_points(shapes.VisibilityMode.NEVER)
        .span_nulls(True)
        .axis_soft_min(0)
        .legend(legend)
        .tooltip(
            common.VizTooltipOptions()
            .mode(shapes.TooltipDisplayMode.MULTI)
            .sort(shapes.SortOrder.DESCENDING)
        )
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
    )


def _table(said: Panel) -> table.Panel:
    """Join the queries by their labels into rows: the labels first, then a column per query."""
    values = {value_column(said, number): ask for number, ask in enumerate(said.asks)}
    order = {name: place for place, name in enumerate((*said.columns, *values))}
    drawn = (
        table.Panel()
        .with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            model.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {"Time": True},
                    "indexByName": order,
                    "renameByName": {
                        **{name: name.replace("_", " ").capitalize() for name in said.columns},
                        **{name: ask.legend for name, ask in values.items()},
                    },
                },
            )
        )
        .show_header(True)
        .cell_height(shapes.TableCellHeight.SM)
        .min_width(70)
        .sort_by([common.TableSortByFieldState().display_name(said.asks[0].legend).desc(True)])
    )
    for ask in said.asks:
        if ask.unit is not None:
            unit = model.DynamicConfigValue(id_val="unit", value=ask.unit)
            drawn.override_by_name(ask.legend, [unit])
    return drawn


def value_column(said: Panel, number: int) -> str:
    """Give the name that Grafana gives to the values of a table's query."""
    return "Value" if len(said.asks) == 1 else f"Value #{ascii_uppercase[number]}"


def _target(said: Panel, ask: Ask, number: int) -> prometheus.Dataquery:
    query = prometheus.Dataquery().expr(ask.expr).ref_id(ascii_uppercase[number])
    if said.shape == "table":
        return query.instant().format(PromQueryFormat.TABLE)
    query.legend_format(ask.legend or "__auto").format(PromQueryFormat.TIME_SERIES)
    if said.shape in ("lines", "stacked"):
        return query.range().exemplar(said.traced)
    return query.instant()


def _thresholds(steps: Sequence[tuple[float | None, str]]) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=value, color=color) for value, color in steps])
    )


def _words(said: Panel) -> model.ValueMapping:
    shown = {
        f"{value:g}": model.ValueMappingResult(text=text, color=color, index=place)
        for place, (value, text, color) in enumerate(said.words)
    }
    return model.ValueMap(options=shown)


def _variable(said: Variable) -> dashboard.QueryVariable:
    drawn = (
        dashboard.QueryVariable(said.name)
        .label(said.label)
        .query(said.query)
        .datasource(SOURCE)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(not said.single)
        .include_all(not said.single)
    )
    if said.single:
        only = model.VariableOption(selected=True, text=said.single, value=said.single)
        return drawn.current(only)
    everything = model.VariableOption(selected=True, text="All", value="$__all")
    return drawn.all_value(".*").current(everything)


def _others() -> dashboard.DashboardLink:
    """Lead to the other dashboards, with the same range and the same choices."""
    return (
        dashboard.DashboardLink("Headrace")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(False)
        .include_vars(True)
        .keep_time(True)
    )


def _reloads() -> dashboard.AnnotationQuery:
    """Mark when new policies came into force."""
    return (
        dashboard.AnnotationQuery()
        .name("Policies in force")
        .datasource(SOURCE)
        .enable(True)
        .icon_color("blue")
        .expr('sum(changes(headrace_policy_reloads_total{result="in_force"}[$__interval])) > 0')
    )
