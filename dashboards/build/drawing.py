"""Converts boards to Grafana's model. No other module uses its library."""

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

from dashboards.build.panels import Board, Panel, Query, Row, Variable

GrafanaPanel = stat.Panel | timeseries.Panel | bargauge.Panel | table.Panel
SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "headrace"
PLAIN = ((None, "text"),)


def board(board: Board) -> model.Dashboard:
    """Convert a dashboard. Panels are numbered in reading order."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .timezone("utc")
        .time(f"now-{board.span}", "now")
        .refresh("1m")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(_dashboard_links())
        .annotation(_reload_annotation())
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Source").type("prometheus")
        )
    )
    for variable in board.variables:
        builder.with_variable(_variable(variable))
    number = 0
    for row in board.rows:
        number = _add_row(builder, row, number)
    return builder.build()


def _add_row(builder: dashboard.Dashboard, row: Row, number: int) -> int:
    """Add a row and its panels, and return the last id."""
    builder.with_row(dashboard.Row(row.title).id(number := number + 1))
    for content in row.panels:
        builder.with_panel(panel(content).id(number := number + 1))
    return number


def panel(panel: Panel) -> GrafanaPanel:
    builder = _shape(panel)
    builder.title(panel.title).description(panel.question).unit(panel.unit).datasource(SOURCE)
    builder.span(panel.width).height(panel.height).thresholds(_thresholds(panel.steps or PLAIN))
    builder.targets([_target(panel, query, number) for number, query in enumerate(panel.queries)])
    if panel.maximum is not None:
        builder.min(0).max(panel.maximum)
    if panel.decimals is not None:
        builder.decimals(panel.decimals)
    if panel.time_from is not None:
        builder.time_from(panel.time_from)
    if panel.value_texts:
        builder.mappings([_value_mapping(panel)])
    return builder


def _shape(panel: Panel) -> GrafanaPanel:
    match panel.shape:
        case "stat":
            return _stat(panel)
        case "bars":
            return _bars()
        case "table":
            return _table(panel)
        case "lines" | "stacked":
            return _lines(panel)


def _last_value() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def _stat(panel: Panel) -> stat.Panel:
    mode = (
        shapes.BigValueColorMode.VALUE
        if panel.steps or panel.value_texts
        else shapes.BigValueColorMode.NONE
    )
    return (
        stat.Panel()
        .reduce_options(_last_value())
        .graph_mode(shapes.BigValueGraphMode.NONE)
        .color_mode(mode)
        .text_mode(shapes.BigValueTextMode.AUTO)
        .justify_mode(shapes.BigValueJustifyMode.AUTO)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    )


def _bars() -> bargauge.Panel:
    return (
        bargauge.Panel()
        .reduce_options(_last_value())
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .display_mode(shapes.BarGaugeDisplayMode.BASIC)
        .value_mode(shapes.BarGaugeValueMode.TEXT)
        .show_unfilled(True)
        .text(common.VizTextDisplayOptions().title_size(13).value_size(16))
        .min(0)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
    )


def _lines(panel: Panel) -> timeseries.Panel:
    stacked = panel.shape == "stacked"
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


def _table(panel: Panel) -> table.Panel:
    """Join queries by their labels: label columns first, then a column per query."""
    values = {value_column(panel, number): query for number, query in enumerate(panel.queries)}
    order = {name: index for index, name in enumerate((*panel.columns, *values))}
    builder = (
        table.Panel()
        .with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            model.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {"Time": True},
                    "indexByName": order,
                    "renameByName": {
                        **{name: name.replace("_", " ").capitalize() for name in panel.columns},
                        **{name: query.legend for name, query in values.items()},
                    },
                },
            )
        )
        .show_header(True)
        .cell_height(shapes.TableCellHeight.SM)
        .min_width(70)
        .sort_by([common.TableSortByFieldState().display_name(panel.queries[0].legend).desc(True)])
    )
    for query in panel.queries:
        if query.unit is not None:
            unit = model.DynamicConfigValue(id_val="unit", value=query.unit)
            builder.override_by_name(query.legend, [unit])
    return builder


def value_column(panel: Panel, number: int) -> str:
    """Return Grafana's name for the values of a query in a table."""
    return "Value" if len(panel.queries) == 1 else f"Value #{ascii_uppercase[number]}"


def _target(panel: Panel, query: Query, number: int) -> prometheus.Dataquery:
    builder = prometheus.Dataquery().expr(query.expr).ref_id(ascii_uppercase[number])
    if panel.shape == "table":
        return builder.instant().format(PromQueryFormat.TABLE)
    builder.legend_format(query.legend or "__auto").format(PromQueryFormat.TIME_SERIES)
    if panel.shape in ("lines", "stacked"):
        return builder.range().exemplar(panel.exemplars)
    return builder.instant()


def _thresholds(steps: Sequence[tuple[float | None, str]]) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=value, color=color) for value, color in steps])
    )


def _value_mapping(panel: Panel) -> model.ValueMapping:
    options = {
        f"{value:g}": model.ValueMappingResult(text=text, color=color, index=index)
        for index, (value, text, color) in enumerate(panel.value_texts)
    }
    return model.ValueMap(options=options)


def _variable(variable: Variable) -> dashboard.QueryVariable:
    builder = (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .query(variable.query)
        .datasource(SOURCE)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(not variable.single)
        .include_all(not variable.single)
    )
    if variable.single:
        option = model.VariableOption(selected=True, text=variable.single, value=variable.single)
        return builder.current(option)
    option = model.VariableOption(selected=True, text="All", value="$__all")
    return builder.all_value(".*").current(option)


def _dashboard_links() -> dashboard.DashboardLink:
    """Link to the other dashboards, with the same time range and variables."""
    return (
        dashboard.DashboardLink("Headrace")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(False)
        .include_vars(True)
        .keep_time(True)
    )


def _reload_annotation() -> dashboard.AnnotationQuery:
    """Mark when new policies became active."""
    return (
        dashboard.AnnotationQuery()
        .name("Active policies")
        .datasource(SOURCE)
        .enable(True)
        .icon_color("blue")
        .expr('sum(changes(headrace_policy_reloads_total{result="in_force"}[$__interval])) > 0')
    )
