"""Queue disciplines with their options, classes and classifiers: what is asked of the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from socket import htons
from typing import Any

from pyroute2 import protocols
from pyroute2.netlink import rtnl
from pyroute2.netlink.rtnl.tcmsg import (
    act_mirred,
    common,
    sched_bpf,
    sched_codel,
    sched_fq_codel,
    sched_pfifo_fast,
    sched_plug,
    tcmsg,
)

from emulator.linux.messages import additions
from emulator.linux.messages.shape import (
    CREATE,
    REPLACE,
    Shape,
    Value,
    array,
    composed,
    content,
    i32,
    i64,
    size,
    text,
    u8,
    u16,
    u32,
    u64,
)

_HOOKS = 0xFFFF0000
_INGRESS, _EGRESS = _HOOKS | 0xFFF2, _HOOKS | 0xFFF3  # TC_H_MIN_INGRESS, TC_H_MIN_EGRESS


def _qdisc(**fields: Any) -> dict[str, Any]:
    found = {"index": i32("index"), "handle": u32("handle"), "parent": u32("parent")} | fields
    return {**found, "attrs": [("TCA_KIND", text("kind"))]}


def _with_options(shape: Mapping[str, Any]) -> dict[str, Any]:
    return {**shape, "attrs": [*shape["attrs"], ("TCA_OPTIONS", content("options"))]}


def _filter(kind: str, options: Any, parent: Any, order: Any) -> Shape:
    fields = {"index": i32("index"), "parent": parent, "info": order}
    attributes = [("TCA_KIND", kind), ("TCA_OPTIONS", {"attrs": options})]
    return Shape(tcmsg, {**fields, "attrs": attributes}, rtnl.RTM_NEWTFILTER, CREATE)


_ANY_KIND = composed(tcmsg, "TCA_OPTIONS")
_REDIRECTION = {
    "action": common.tc_actions["stolen"],
    "eaction": act_mirred.MIRRED_EACTIONS["egress", "redirect"],
    "ifindex": u32("target"),
}
_REDIRECT = [
    ("TCA_ACT_KIND", "mirred"),
    ("TCA_ACT_OPTIONS", {"attrs": [("TCA_MIRRED_PARMS", _REDIRECTION)]}),
]

_ALL_PROTOCOLS = htons(protocols.ETH_P_ALL)
_ORDER = Value("order", "H", _ALL_PROTOCOLS, 0xFFFF << 16 | _ALL_PROTOCOLS)
_CLASSIFIER = [
    ("TCA_BPF_CLASSID", u32("number")),
    ("TCA_BPF_FD", u32("program")),
    ("TCA_BPF_NAME", "groundwire"),
    ("TCA_BPF_FLAGS", sched_bpf.TCA_BPF_FLAG_ACT_DIRECT),
]

QUEUES = {
    "QDISC": Shape(tcmsg, _qdisc(), rtnl.RTM_NEWQDISC, REPLACE),
    "QDISC_WITH_OPTIONS": Shape(_ANY_KIND, _with_options(_qdisc()), rtnl.RTM_NEWQDISC, REPLACE),
    "QDISC_CHANGED": Shape(_ANY_KIND, _with_options(_qdisc()), rtnl.RTM_NEWQDISC),
    "QDISC_DELETED": Shape(
        tcmsg, {"index": i32("index"), "parent": rtnl.TC_H_ROOT}, rtnl.RTM_DELQDISC
    ),
    "GET_QDISCS": Shape(tcmsg, {}, rtnl.RTM_GETQDISC),
    "HOOKS": Shape(
        tcmsg,
        {
            "index": i32("index"),
            "handle": _HOOKS,
            "parent": rtnl.TC_H_CLSACT,
            "attrs": [("TCA_KIND", "clsact")],
        },
        rtnl.RTM_NEWQDISC,
        CREATE,
    ),
    "REDIRECT": _filter(
        "matchall",
        [("TCA_MATCHALL_ACT", {"attrs": [("TCA_ACT_PRIO_1", {"attrs": _REDIRECT})]})],
        _INGRESS,
        3 << 16 | _ALL_PROTOCOLS,
    ),
    "CLASSIFIER_OF_ARRIVING": _filter("bpf", _CLASSIFIER, _INGRESS, _ORDER),
    "CLASSIFIER_OF_LEAVING": _filter("bpf", _CLASSIFIER, _EGRESS, _ORDER),
    "DRR_CLASS": Shape(
        tcmsg,
        {
            "index": i32("index"),
            "handle": u32("class_id"),
            "parent": u32("parent"),
            "attrs": [
                ("TCA_KIND", "drr"),
                ("TCA_OPTIONS", {"attrs": [("TCA_DRR_QUANTUM", u32("quantum_bytes"))]}),
            ],
        },
        rtnl.RTM_NEWTCLASS,
        CREATE,
    ),
}


def _codel(kind: str) -> list[Any]:
    names = ("TARGET", "LIMIT", "INTERVAL", "ECN")
    return [(f"TCA_{kind}_{name}", u32(name.lower())) for name in names]


def _fields(of: Any) -> dict[str, Value]:
    made = {"I": u32, "Q": u64}
    return {name: made[form](name) for name, form in of.fields}


_GWPORT = additions.sched_gwport.options
OPTIONS = {
    "BFIFO": Shape(additions.sched_bfifo.options, {"limit": u32("limit_bytes")}),
    "CODEL": Shape(sched_codel.options, {"attrs": _codel("CODEL")}),
    "CODEL_CE": Shape(
        sched_codel.options, {"attrs": [("TCA_CODEL_CE_THRESHOLD", u32("threshold_us"))]}
    ),
    "FQ_CODEL": Shape(
        sched_fq_codel.options,
        {
            "attrs": [
                *_codel("FQ_CODEL"),
                ("TCA_FQ_CODEL_FLOWS", u32("flows")),
                ("TCA_FQ_CODEL_QUANTUM", u32("quantum_bytes")),
            ]
        },
    ),
    "FQ_CODEL_CE": Shape(
        sched_fq_codel.options, {"attrs": [("TCA_FQ_CODEL_CE_THRESHOLD", u32("threshold_us"))]}
    ),
    "GWPORT": Shape(_GWPORT, {"attrs": [("TCA_GWPORT_PARMS", _fields(_GWPORT.tc_gwport_qopt))]}),
    "GWPORT_CLASSES": Shape(_GWPORT, {"attrs": [("TCA_GWPORT_CLASSES", content("classes"))]}),
    "NETEM": Shape(
        additions.netem_options,
        {
            "limit": u32("limit_packets"),
            "loss": u32("loss_q32"),
            "attrs": [
                ("TCA_NETEM_CORRUPT", {"prob_corrupt": u32("corruption_q32")}),
                (
                    "TCA_NETEM_RATE",
                    {"rate": u32("rate_bytes"), "packet_overhead": i32("overhead_bytes")},
                ),
            ],
        },
    ),
    "NETEM_RATE": Shape(
        additions.netem_options,
        {"attrs": [("TCA_NETEM_RATE64", u64("rate_bytes"))]},
        skipped_bytes=size(additions.netem_options.fields),
    ),
    "NETEM_LATENCY": Shape(
        additions.netem_options,
        {"attrs": [("TCA_NETEM_LATENCY64", i64("delay_ns"))]},
        skipped_bytes=size(additions.netem_options.fields),
    ),
    "PLUG": Shape(sched_plug.options, {"action": i32("action"), "limit": u32("limit_bytes")}),
    "PRIO": Shape(sched_pfifo_fast.options, {"bands": i32("bands"), "priomap": array("map", 16)}),
    "RED": Shape(
        additions.sched_red.options,
        {
            "attrs": [
                (
                    "TCA_RED_PARMS",
                    {
                        "limit": u32("limit_bytes"),
                        "qth_min": u32("min_bytes"),
                        "qth_max": u32("max_bytes"),
                        "Wlog": u8("log_weight"),
                        "Scell_log": u8("cell_log"),
                    },
                ),
                ("TCA_RED_STAB", content("idle_table")),
                ("TCA_RED_MAX_P", u32("pmax_q32")),
                ("TCA_RED_FLAGS", {"bits": u32("flags"), "selector": u32("of_flags")}),
            ]
        },
    ),
    "TBF": Shape(
        additions.tbf_options,
        {
            "attrs": [
                (
                    "TCA_TBF_PARMS",
                    {
                        "rate___reserved": common.LINKLAYER_ETHERNET,
                        "rate_overhead": u16("overhead_bytes"),
                        "rate": u32("rate_bytes"),
                        "limit": u32("limit_bytes"),
                    },
                ),
                ("TCA_TBF_BURST", u32("burst_bytes")),
            ]
        },
    ),
    "TBF_RATE": Shape(additions.tbf_options, {"attrs": [("TCA_TBF_RATE64", u64("rate_bytes"))]}),
}
