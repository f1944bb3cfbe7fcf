"""Messages that pyroute2 lacks, in its own classes, fit to be offered upstream: RED, bfifo, what
netem and tbf were given since, RDMA's netlink, MPTCP's subflows, what segment routing was given
since Linux 6.0; next hops that are objects; and our own port qdisc, which nobody else has.

Importing this file makes pyroute2 know the queue disciplines. Formats:
include/uapi/linux/{netlink,nexthop,pkt_sched,mptcp_pm,seg6,seg6_iptunnel,seg6_local}.h,
include/uapi/rdma/rdma_netlink.h, `emulator/kernel/gwport.h`.
"""

from __future__ import annotations

from typing import Any

from pyroute2.netlink import NLA_F_NESTED, genlmsg, nla, nlmsg
from pyroute2.netlink.generic.mptcp import mptcp_msg
from pyroute2.netlink.rtnl.rtmsg import nh, rtmsg
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_netem, sched_tbf

NETLINK_RDMA = 20
RDMA_NLDEV_CMD_GET, RDMA_NLDEV_CMD_NEWLINK, RDMA_NLDEV_CMD_DELLINK = (
    5 << 10 | command for command in (1, 3, 4)
)  # RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command)

MPTCP_PM_CMD_SUBFLOW_CREATE = 10


class subflow_msg(genlmsg):
    """A request of a path manager in user space."""

    nla_map = (
        *mptcp_msg.nla_map,
        ("MPTCP_PM_ATTR_TOKEN", "uint32"),
        ("MPTCP_PM_ATTR_LOC_ID", "uint8"),
        ("MPTCP_PM_ATTR_ADDR_REMOTE", "pm_addr"),
    )
    pm_addr = mptcp_msg.pm_addr


class mptcp_event(genlmsg):
    """An event of a connection or of a subflow."""

    nla_map = (
        ("MPTCP_ATTR_UNSPEC", "none"),
        ("MPTCP_ATTR_TOKEN", "uint32"),
        ("MPTCP_ATTR_FAMILY", "uint16"),
        ("MPTCP_ATTR_LOC_ID", "uint8"),
        ("MPTCP_ATTR_REM_ID", "uint8"),
        ("MPTCP_ATTR_SADDR4", "ip4addr"),
        ("MPTCP_ATTR_SADDR6", "ip6addr"),
        ("MPTCP_ATTR_DADDR4", "ip4addr"),
        ("MPTCP_ATTR_DADDR6", "ip6addr"),
        ("MPTCP_ATTR_SPORT", "be16"),
        ("MPTCP_ATTR_DPORT", "be16"),
        ("MPTCP_ATTR_BACKUP", "uint8"),
        ("MPTCP_ATTR_ERROR", "uint8"),
        ("MPTCP_ATTR_FLAGS", "uint16"),
        ("MPTCP_ATTR_TIMEOUT", "uint32"),
        ("MPTCP_ATTR_IF_IDX", "int32"),
        ("MPTCP_ATTR_RESET_REASON", "uint32"),
        ("MPTCP_ATTR_RESET_FLAGS", "uint32"),
        ("MPTCP_ATTR_SERVER_SIDE", "uint8"),
    )


LWTUNNEL_ENCAP_SEG6, LWTUNNEL_ENCAP_SEG6_LOCAL = 5, 7
SEG6_IPTUN_MODE_ENCAP_RED = 3
SEG6_LOCAL_ACTION_END, SEG6_LOCAL_ACTION_END_DX4 = 1, 6
SEG6_LOCAL_FLV_OP_NEXT_CSID = 4


class seg6_list(nla):
    """The list of one segment that wraps a packet."""

    nla_map = (("SEG6_IPTUNNEL_UNSPEC", "none"), ("SEG6_IPTUNNEL_SRH", "seg6_iptunnel_encap"))

    class seg6_iptunnel_encap(nla):  # with a struct ipv6_sr_hdr
        fields = (
            ("mode", "i"),
            ("nexthdr", "B"),
            ("hdrlen", "B"),
            ("type", "B"),
            ("segments_left", "B"),
            ("first_segment", "B"),
            ("flags", "B"),
            ("tag", "H"),
            ("segment", "16s"),
        )


class seg6_behaviour(nla):
    """The deed of a node with packets that are for a segment of its own."""

    nla_map = (
        ("SEG6_LOCAL_UNSPEC", "none"),
        ("SEG6_LOCAL_ACTION", "uint32"),
        ("SEG6_LOCAL_SRH", "cdata"),
        ("SEG6_LOCAL_TABLE", "uint32"),
        ("SEG6_LOCAL_NH4", "ip4addr"),
        ("SEG6_LOCAL_NH6", "ip6addr"),
        ("SEG6_LOCAL_IIF", "uint32"),
        ("SEG6_LOCAL_OIF", "uint32"),
        ("SEG6_LOCAL_BPF", "cdata"),
        ("SEG6_LOCAL_VRFTABLE", "uint32"),
        ("SEG6_LOCAL_COUNTERS", "cdata"),
        ("SEG6_LOCAL_FLAVORS", "flavors"),
    )

    class flavors(nla):
        nla_map = (
            ("SEG6_LOCAL_FLV_UNSPEC", "none"),
            ("SEG6_LOCAL_FLV_OPERATION", "uint32"),
            ("SEG6_LOCAL_FLV_LCBLOCK_BITS", "uint8"),
            ("SEG6_LOCAL_FLV_LCNODE_FN_BITS", "uint8"),
        )


def _with_encapsulation(of: Any, name: str) -> Any:
    """A route, or a next hop, whose RTA_ENCAP is of this class."""
    kinds = tuple((key, name if key == "RTA_ENCAP" else kind) for key, kind in of.nla_map)
    own = {"nla_map": kinds, name: seg6_list if name == "seg6_list" else seg6_behaviour}
    made: Any = type(of.__name__, (of,), own)
    made().compile_nla_table()  # else it may inherit that of the class
    return made


behaviour_route = _with_encapsulation(rtmsg, "seg6_behaviour")
_wrapping_hop = _with_encapsulation(nh, "seg6_list")


class wrapping_route(rtmsg):
    """A route whose next hops wrap packets."""

    @staticmethod
    def get_nh(self: Any, *given: Any, **named: Any) -> Any:
        return _wrapping_hop


RTM_NEWNEXTHOP, RTM_DELNEXTHOP = 104, 105
NEXTHOP_GRP_TYPE_RES = 1


class nhmsg(nlmsg):
    """A next hop that routes name by its number, or a group of such next hops."""

    prefix = "NHA_"
    fields = (
        ("family", "B"),
        ("scope", "B"),
        ("protocol", "B"),
        ("resvd", "B"),
        ("flags", "I"),
    )
    nla_map = (
        ("NHA_UNSPEC", "none"),
        ("NHA_ID", "uint32"),
        ("NHA_GROUP", "cdata"),  # of struct nexthop_grp
        ("NHA_GROUP_TYPE", "uint16"),
        ("NHA_BLACKHOLE", "flag"),
        ("NHA_OIF", "uint32"),
        ("NHA_GATEWAY", "ip4addr"),
        ("NHA_ENCAP_TYPE", "uint16"),
        ("NHA_ENCAP", "cdata"),
        ("NHA_GROUPS", "flag"),
        ("NHA_MASTER", "uint32"),
        ("NHA_FDB", "flag"),
        ("NHA_RES_GROUP", "res_group"),
    )

    class res_group(nla):
        nla_flags = NLA_F_NESTED
        nla_map = (
            ("NHA_RES_GROUP_PAD", "none"),
            ("NHA_RES_GROUP_BUCKETS", "uint16"),
            ("NHA_RES_GROUP_IDLE_TIMER", "uint32"),
            ("NHA_RES_GROUP_UNBALANCED_TIMER", "uint32"),
            ("NHA_RES_GROUP_UNBALANCED_TIME", "uint64"),
        )


class nexthop_grp(nla):
    """A next hop of a group. `weight_high` is there since Linux 6.12."""

    fields = (("id", "I"), ("weight_less_one", "B"), ("weight_high", "B"), ("resvd2", "H"))


class group_route(rtmsg):
    """A route that has its next hops by number."""

    nla_map = (
        *rtmsg.nla_map,
        ("RTA_PAD", "none"),
        ("RTA_UID", "uint32"),
        ("RTA_TTL_PROPAGATE", "uint8"),
        ("RTA_IP_PROTO", "uint8"),
        ("RTA_SPORT", "be16"),
        ("RTA_DPORT", "be16"),
        ("RTA_NH_ID", "uint32"),
    )


class sched_bfifo:
    class options(nla):  # struct tc_fifo_qopt
        fields = (("limit", "I"),)


class sched_red:
    class options(nla):
        nla_map = (
            ("TCA_RED_UNSPEC", "none"),
            ("TCA_RED_PARMS", "tc_red_qopt"),
            ("TCA_RED_STAB", "cdata"),
            ("TCA_RED_MAX_P", "uint32"),
            ("TCA_RED_FLAGS", "nla_bitfield32"),
            ("TCA_RED_EARLY_DROP_BLOCK", "uint32"),
            ("TCA_RED_MARK_BLOCK", "uint32"),
        )

        class tc_red_qopt(nla):
            fields = (
                ("limit", "I"),
                ("qth_min", "I"),
                ("qth_max", "I"),
                ("Wlog", "B"),
                ("Plog", "B"),
                ("Scell_log", "B"),
                ("flags", "B"),
            )

        class nla_bitfield32(nla):
            fields = (("bits", "I"), ("selector", "I"))

    class stats(nla):  # struct tc_red_xstats
        fields = (("early", "I"), ("pdrop", "I"), ("other", "I"), ("marked", "I"))


class netem_options(sched_netem.options):
    """With the attributes since Linux 3.13; a rate and times beyond 32 bits are among them."""

    nla_map = (
        *sched_netem.options.nla_map,
        ("TCA_NETEM_ECN", "uint32"),
        ("TCA_NETEM_RATE64", "uint64"),
        ("TCA_NETEM_PAD", "none"),
        ("TCA_NETEM_LATENCY64", "int64"),
        ("TCA_NETEM_JITTER64", "int64"),
        ("TCA_NETEM_SLOT", "none"),
        ("TCA_NETEM_SLOT_DIST", "none"),
        ("TCA_NETEM_PRNG_SEED", "uint64"),
    )


class tbf_options(sched_tbf.options):
    """With the attributes since Linux 3.14, which make the rate tables unnecessary: with a burst in
    bytes nothing is computed here, as it is for the tables."""

    nla_map = (
        *sched_tbf.options.nla_map,
        ("TCA_TBF_RATE64", "uint64"),
        ("TCA_TBF_PRATE64", "uint64"),
        ("TCA_TBF_BURST", "uint32"),
        ("TCA_TBF_PBURST", "uint32"),
        ("TCA_TBF_PAD", "none"),
    )

    class tbf_parms(sched_tbf.options.tbf_parms):  # `rate___reserved` is tc_ratespec's link layer
        def encode(self) -> None:
            """With the rate tables where they are asked for, as by pyroute2's own `tc`."""
            asked = any(attribute[0] == "TCA_TBF_RTAB" for attribute in self.parent["attrs"])
            if asked:
                super().encode()
            else:
                nla.encode(self)


class nldevmsg(nlmsg):
    """RDMA devices and the links that they stand on (RDMA_NL_NLDEV)."""

    prefix = "RDMA_NLDEV_ATTR_"
    nla_map = (
        (1, "RDMA_NLDEV_ATTR_DEV_INDEX", "uint32"),
        (2, "RDMA_NLDEV_ATTR_DEV_NAME", "asciiz"),
        (51, "RDMA_NLDEV_ATTR_NDEV_NAME", "asciiz"),
        (65, "RDMA_NLDEV_ATTR_LINK_TYPE", "asciiz"),
    )


class sched_gwport:
    """The port qdisc of the virtual kernel. `TCA_GWPORT_CLASSES` holds a struct for each class."""

    class options(nla):
        nla_map = (
            ("TCA_GWPORT_UNSPEC", "none"),
            ("TCA_GWPORT_PARMS", "tc_gwport_qopt"),
            ("TCA_GWPORT_CLASSES", "cdata"),
        )

        class tc_gwport_qopt(nla):
            fields = (
                ("rate_bps", "Q"),
                ("delay_ns", "Q"),
                ("buffer_bytes", "Q"),
                ("k_bytes", "Q"),
                ("kmin_bytes", "Q"),
                ("kmax_bytes", "Q"),
                ("target_ns", "Q"),
                ("interval_ns", "Q"),
                ("ce_threshold_ns", "Q"),
                ("xoff_bytes", "Q"),
                ("xon_bytes", "Q"),
                ("headroom_bytes", "Q"),
                ("extra_delay_ns", "Q"),
                ("seed", "Q"),
                ("sample_interval_ns", "Q"),
                ("fabric_bps", "Q"),
                ("fabric_ns", "Q"),
                ("version", "I"),
                ("kind", "I"),
                ("flags", "I"),
                ("overhead_bytes", "I"),
                ("min_frame_bytes", "I"),
                ("queues", "I"),
                ("quantum_bytes", "I"),
                ("red_pmax_q32", "I"),
                ("red_weight_q32", "I"),
                ("alpha_q16", "I"),
                ("lossy_classes", "I"),
                ("loss_q32", "I"),
                ("corrupt_q32", "I"),
                ("sample_capacity", "I"),
                ("class_map", "I"),
                ("class_quantum_bytes", "I"),
                ("card", "I"),
                ("fabric_links", "I"),
                ("cell_bytes", "I"),
                ("cell_header_bytes", "I"),
            )

    class stats(nla):  # struct tc_gwport_xstats
        fields = (
            ("tx_bytes", "Q"),
            ("tx_packets", "Q"),
            ("wire_bytes", "Q"),
            ("delivered_bytes", "Q"),
            ("delivered_packets", "Q"),
            ("drops", "8Q"),
            ("drop_bytes", "Q"),
            ("ecn_marks", "Q"),
            ("ecn_refused", "Q"),
            ("backlog_bytes", "Q"),
            ("backlog_packets", "Q"),
            ("max_backlog_bytes", "Q"),
            ("backlog_byte_us", "Q"),
            ("observed_ns", "Q"),
            ("wait_sum_ns", "Q"),
            ("wait_max_ns", "Q"),
            ("inflight_packets", "Q"),
            ("pauses", "Q"),
            ("resumes", "Q"),
            ("paused_ns", "Q"),
            ("class_paused_ns", "8Q"),
            ("class_tx_bytes", "8Q"),
            ("class_tx_packets", "8Q"),
            ("class_drops", "8Q"),
            ("class_ecn_marks", "8Q"),
            ("class_max_backlog_bytes", "8Q"),
            ("xoffs_sent", "Q"),
            ("xons_sent", "Q"),
            ("ingress_bytes", "Q"),
            ("ingress_max_bytes", "Q"),
            ("switch_bytes", "Q"),
            ("late_packets", "Q"),
            ("late_max_ns", "Q"),
            ("samples_lost", "Q"),
            ("trims", "Q"),
            ("trimmed_bytes", "Q"),
            ("paused_classes", "I"),
            ("samples", "I"),
        )


for extended in (netem_options, tbf_options, wrapping_route, group_route):
    extended().compile_nla_table()  # else the table of the class that it extends may be inherited
sched_netem.options = netem_options
sched_tbf.options = tbf_options
plugins |= {"bfifo": sched_bfifo, "red": sched_red, "gwport": sched_gwport}
