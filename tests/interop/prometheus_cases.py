"""For each alert series with which it fires, and with which it does not: in promtool's notation, one value a minute."""

from __future__ import annotations

from typing import NamedTuple

Series = dict[str, str]
B = 'job="moldau",instance="a"'
FOLDER = f'{B},folder="/data"'
GROUP = f'{B},group="g",topic="t"'
LONG = 120


class Case(NamedTuple):
    alert: str
    wrong: Series
    before_m: int
    """The last minute at which it does not fire yet."""
    fires_m: int
    well: Series


def gauge(alert: str, name: str, bad: float, good: float, for_m: int) -> Case:
    """One that is bad from the third minute on."""
    return Case(
        alert,
        {name: f"{good:g}x2 {bad:g}x{LONG}"},
        for_m + 2,
        for_m + 4,
        {name: f"{good:g}x{LONG}"},
    )


def histogram(name: str, labels: str, bounds: tuple[str, ...], each_minute: tuple[int, ...]) -> Series:
    """So many observations a minute up to each bound."""
    return {
        f'{name}_bucket{{{labels},le="{bound}"}}': f"0+{count}x{LONG}"
        for bound, count in zip(bounds, each_minute, strict=True)
    }


def slow(alert: str, name: str, labels: str, slow_bound: str) -> Case:
    bounds = ("0.01", slow_bound, "1", "+Inf")
    return Case(
        alert,
        histogram(name, labels, bounds, (90, 90, 100, 100)),
        9,
        14,
        histogram(name, labels, bounds, (100, 100, 100, 100)),
    )


def both(*series: tuple[str, str]) -> Series:
    return dict(series)


FREE, SIZE = (f"moldau_data_folder_{what}_bytes{{{FOLDER}}}" for what in ("free", "disk"))
FDS, MAX_FDS = f"process_open_fds{{{B}}}", f"process_max_fds{{{B}}}"
LAG, COMMITTED = (f"moldau_group_{what}{{{GROUP}}}" for what in ("lag_messages", "committed_offsets"))
MEMBERS = f'moldau_group_members{{{B},group="g"}}'
ERRORS = f'moldau_request_errors_total{{{B},api="Produce",error="%s"}}'

CASES = (
    gauge("MoldauBrokerDown", f"up{{{B}}}", 0, 1, 1),
    gauge("MoldauBrokerNotReady", f"moldau_ready{{{B}}}", 0, 1, 5),
    gauge("MoldauNoController", f"moldau_active_controller{{{B}}}", 0, 1, 2),
    gauge("MoldauOfflinePartitions", f"moldau_controller_offline_partitions{{{B}}}", 3, 0, 1),
    gauge("MoldauUnderMinIsr", f"moldau_partitions_under_min_isr{{{B}}}", 1, 0, 1),
    gauge("MoldauUnderReplicated", f"moldau_partitions_under_replicated{{{B}}}", 1, 0, 5),
    gauge("MoldauBrokerFenced", f"moldau_controller_fenced_brokers{{{B}}}", 1, 0, 5),
    Case(
        "MoldauInSyncSetsChange",
        {f"moldau_in_sync_shrinks_total{{{B}}}": f"0+2x{LONG}"},
        10,
        25,
        {f"moldau_in_sync_shrinks_total{{{B}}}": f"0x10 9x{LONG}"},
    ),
    Case(
        "MoldauUncleanElection",
        {f"moldau_unclean_leader_elections_total{{{B}}}": f"1x30 2x{LONG}"},
        30,
        33,
        {f"moldau_unclean_leader_elections_total{{{B}}}": f"1x{LONG}"},
    ),
    Case(
        "MoldauDataFolder",
        {f'moldau_data_folder_state{{{FOLDER},state="full"}}': f"0x3 1x{LONG}"},
        3,
        5,
        {f'moldau_data_folder_state{{{FOLDER},state="ok"}}': f"1x{LONG}"},
    ),
    Case(
        "MoldauDiskAlmostFull",
        both((FREE, f"50x2 9x{LONG}"), (SIZE, f"100x{LONG}")),
        7,
        9,
        both((FREE, f"11x{LONG}"), (SIZE, f"100x{LONG}")),
    ),
    Case(
        "MoldauDiskFillsUp",
        both((FREE, f"3600-6x{LONG * 3}"), (SIZE, f"10000x{LONG * 3}")),
        59,
        120,
        both((FREE, f"3600-1x{LONG * 3}"), (SIZE, f"10000x{LONG * 3}")),
    ),
    Case(
        "MoldauReadErrors",
        {f"moldau_read_errors_total{{{B}}}": f"0x3 1x{LONG}"},
        3,
        6,
        {f"moldau_read_errors_total{{{B}}}": f"0x{LONG}"},
    ),
    gauge("MoldauCompactionFails", f"moldau_cleaner_uncleanable_partitions{{{B}}}", 1, 0, 5),
    Case(
        "MoldauServerErrors",
        {ERRORS % "NOT_ENOUGH_REPLICAS": f"0+1x{LONG}"},
        4,
        12,
        {ERRORS % "NOT_LEADER_OR_FOLLOWER": f"0+1x{LONG}"},
    ),
    slow("MoldauProduceSlow", "moldau_request_duration_seconds", f'{B},api="Produce"', "0.5"),
    slow("MoldauEventLoopHeld", "moldau_event_loop_delay_seconds", B, "0.1"),
    Case(
        "MoldauGroupLag",
        both((LAG, f"20000+100x{LONG}"), (MEMBERS, f"2x{LONG}")),
        14,
        20,
        both((LAG, f"30000-100x{LONG}"), (MEMBERS, f"2x{LONG}")),
    ),
    gauge("MoldauCoordinatorLoads", f'moldau_coordinators{{{B},topic="t",state="loading"}}', 2, 0, 5),
    Case(
        "MoldauDescriptorsShort",
        both((FDS, f"100x2 900x{LONG}"), (MAX_FDS, f"1000x{LONG}")),
        7,
        9,
        both((FDS, f"800x{LONG}"), (MAX_FDS, f"1000x{LONG}")),
    ),
    Case(
        "MoldauConnectionsHeldBack",
        {f"moldau_connections_held_back_total{{{B}}}": f"5x30 6x{LONG}"},
        30,
        33,
        {f"moldau_connections_held_back_total{{{B}}}": f"5x{LONG}"},
    ),
)

SUDDEN = (
    ("MoldauUncleanElection", "moldau_unclean_leader_elections_total"),
    ("MoldauReadErrors", "moldau_read_errors_total"),
    ("MoldauConnectionsHeldBack", "moldau_connections_held_back_total"),
)
"""One event is enough for these, and a broker may have counted it before its first scrape."""
BEGUN_M = 89
FIRST_SCRAPES = {
    "of a broker that was down": "0x8 _x80 7x80",
    "of a broker that is new": f"_x{BEGUN_M} 7x80",
}

DAY_M = 24 * 60
DAYS = 3 * DAY_M
GROWING = f"20000+100x{DAYS}"
GROUPS = {
    "one whose members are stuck": (
        {LAG: GROWING, MEMBERS: f"2x{DAYS}", COMMITTED: f"7x{DAYS}"},
        ((30, 1), (2 * DAY_M, 1)),
    ),
    "one whose members died": (
        {LAG: GROWING, MEMBERS: f"2x{DAY_M} 0x{DAYS}", COMMITTED: f"0+10x{DAY_M} 14400x{DAYS}"},
        ((DAY_M + 60, 1), (2 * DAY_M - 60, 1), (2 * DAY_M + 60, 0)),
    ),
    "one that commits and has no members": (
        {LAG: GROWING, MEMBERS: f"0x{DAYS}", COMMITTED: f"0+10x{DAYS}"},
        ((DAY_M + 60, 1), (2 * DAY_M, 1)),
    ),
    "one that nobody uses": (
        {LAG: GROWING, MEMBERS: f"0x{DAYS}", COMMITTED: f"7x{DAYS}"},
        ((30, 0), (DAY_M + 60, 0), (2 * DAY_M, 0)),
    ),
}
"""For each series, and minutes with whether MoldauGroupLag fires then."""
