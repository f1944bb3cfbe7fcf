"""Netlink's messages by pyroute2. Made by `python -m emulator.linux.messages`."""

# fmt: off
# ruff: noqa: E501

from __future__ import annotations

from emulator.linux.messages.template import Blank, Layout, OpenBlank, Template

NETLINK_ROUTE = 0
NETLINK_EXT_ACK = 11
SOL_NETLINK = 270
NLMSG_NOOP = 1
NLMSG_ERROR = 2
NLMSG_DONE = 3
NLM_F_REQUEST = 1
NLM_F_ACK = 4
NLM_F_ACK_TLVS = 512
NLM_F_DUMP = 768
NLM_F_DUMP_INTR = 16
RTM_DELROUTE = 25
TC_H_ROOT = 4294967295
RTM_DELNEXTHOP = 105
NLMSGERR_ATTR_MSG = 1
IFLA_OPERSTATE = 16
IFLA_STATS64 = 23
TCA_KIND = 1
TCA_OPTIONS = 2
TCA_XSTATS = 4
TCA_STATS2 = 7
RTAX_RTO_MIN = 13
TCA_STATS_BASIC = 1
TCA_STATS_QUEUE = 3
CTRL_ATTR_FAMILY_ID = 1
CTRL_ATTR_FAMILY_NAME = 2
CTRL_ATTR_MCAST_GROUPS = 7
CTRL_ATTR_MCAST_GRP_NAME = 1
CTRL_ATTR_MCAST_GRP_ID = 2
MPTCP_ATTR_TOKEN = 1
MPTCP_ATTR_FAMILY = 2
MPTCP_ATTR_SADDR4 = 5
MPTCP_ATTR_DADDR4 = 7
MPTCP_ATTR_SPORT = 9
MPTCP_ATTR_DPORT = 10
MPTCP_ATTR_SERVER_SIDE = 18
RDMA_NLDEV_ATTR_DEV_INDEX = 1
RDMA_NLDEV_ATTR_DEV_NAME = 2
MESSAGE_HEADER = Layout(*(('length', 'I'), ('type', 'H'), ('flags', 'H'), ('sequence_number', 'I'), ('pid', 'I')))
ATTRIBUTE_HEADER = Layout(*(('length', 'H'), ('type', 'H')))
REFUSAL = Layout(*(('error', 'i'),))
INTERFACE = Layout(*(('family', 'B'), ('__align', 'x'), ('ifi_type', 'H'), ('index', 'i'), ('flags', 'I'), ('change', 'I')))
INTERFACE_STATISTICS = Layout(*(('rx_packets', 'Q'), ('tx_packets', 'Q'), ('rx_bytes', 'Q'), ('tx_bytes', 'Q'), ('rx_errors', 'Q'), ('tx_errors', 'Q'), ('rx_dropped', 'Q'), ('tx_dropped', 'Q'), ('multicast', 'Q'), ('collisions', 'Q'), ('rx_length_errors', 'Q'), ('rx_over_errors', 'Q'), ('rx_crc_errors', 'Q'), ('rx_frame_errors', 'Q'), ('rx_fifo_errors', 'Q'), ('rx_missed_errors', 'Q'), ('tx_aborted_errors', 'Q'), ('tx_carrier_errors', 'Q'), ('tx_fifo_errors', 'Q'), ('tx_heartbeat_errors', 'Q'), ('tx_window_errors', 'Q'), ('rx_compressed', 'Q'), ('tx_compressed', 'Q')))
QDISC_MESSAGE = Layout(*(('family', 'B'), ('pad1', 'B'), ('pad2', 'H'), ('index', 'i'), ('handle', 'I'), ('parent', 'I'), ('info', 'I')))
QDISC_BASIC = Layout(*(('bytes', 'Q'), ('packets', 'I')))
QDISC_QUEUE = Layout(*(('qlen', 'I'), ('backlog', 'I'), ('drops', 'I'), ('requeues', 'I'), ('overlimits', 'I')))
RED_STATISTICS = Layout(*(('early', 'I'), ('pdrop', 'I'), ('other', 'I'), ('marked', 'I')))
CODEL_STATISTICS = Layout(*(('maxpacket', 'I'), ('count', 'I'), ('lastcount', 'I'), ('ldelay', 'I'), ('drop_next', 'I'), ('drop_overlimit', 'I'), ('ecn_mark', 'I'), ('dropping', 'I'), ('ce_mark', 'I')))
FQ_CODEL_STATISTICS = Layout(*(('type', 'I'), ('maxpacket', 'I'), ('drop_overlimit', 'I'), ('ecn_mark', 'I'), ('new_flow_count', 'I'), ('new_flows_len', 'I'), ('old_flows_len', 'I'), ('ce_mark', 'I'), ('memory_usage', 'I'), ('drop_overmemory', 'I')))
GROUP_MEMBER = Layout(*(('id', 'I'), ('weight_less_one', 'B'), ('weight_high', 'B'), ('resvd2', 'H')))
GWPORT_PARMS = Layout(*(('rate_bps', 'Q'), ('delay_ns', 'Q'), ('buffer_bytes', 'Q'), ('k_bytes', 'Q'), ('kmin_bytes', 'Q'), ('kmax_bytes', 'Q'), ('target_ns', 'Q'), ('interval_ns', 'Q'), ('ce_threshold_ns', 'Q'), ('xoff_bytes', 'Q'), ('xon_bytes', 'Q'), ('headroom_bytes', 'Q'), ('extra_delay_ns', 'Q'), ('seed', 'Q'), ('sample_interval_ns', 'Q'), ('fabric_bps', 'Q'), ('fabric_ns', 'Q'), ('version', 'I'), ('kind', 'I'), ('flags', 'I'), ('overhead_bytes', 'I'), ('min_frame_bytes', 'I'), ('queues', 'I'), ('quantum_bytes', 'I'), ('red_pmax_q32', 'I'), ('red_weight_q32', 'I'), ('alpha_q16', 'I'), ('lossy_classes', 'I'), ('loss_q32', 'I'), ('corrupt_q32', 'I'), ('sample_capacity', 'I'), ('class_map', 'I'), ('class_quantum_bytes', 'I'), ('card', 'I'), ('fabric_links', 'I'), ('cell_bytes', 'I'), ('cell_header_bytes', 'I')))
GWPORT_STATISTICS = Layout(*(('tx_bytes', 'Q'), ('tx_packets', 'Q'), ('wire_bytes', 'Q'), ('delivered_bytes', 'Q'), ('delivered_packets', 'Q'), ('drops', '8Q'), ('drop_bytes', 'Q'), ('ecn_marks', 'Q'), ('ecn_refused', 'Q'), ('backlog_bytes', 'Q'), ('backlog_packets', 'Q'), ('max_backlog_bytes', 'Q'), ('backlog_byte_us', 'Q'), ('observed_ns', 'Q'), ('wait_sum_ns', 'Q'), ('wait_max_ns', 'Q'), ('inflight_packets', 'Q'), ('pauses', 'Q'), ('resumes', 'Q'), ('paused_ns', 'Q'), ('class_paused_ns', '8Q'), ('class_tx_bytes', '8Q'), ('class_tx_packets', '8Q'), ('class_drops', '8Q'), ('class_ecn_marks', '8Q'), ('class_max_backlog_bytes', '8Q'), ('xoffs_sent', 'Q'), ('xons_sent', 'Q'), ('ingress_bytes', 'Q'), ('ingress_max_bytes', 'Q'), ('switch_bytes', 'Q'), ('late_packets', 'Q'), ('late_max_ns', 'Q'), ('samples_lost', 'Q'), ('trims', 'Q'), ('trimmed_bytes', 'Q'), ('paused_classes', 'I'), ('samples', 'I')))
VETH = Template(
    16, 0x600, bytes.fromhex('00000000000000000000000000000000080003006162630008001c00000000000a0001000000000000000000080004000000000008000d00e803000008001f0001000000080020000100000008002800010000006c0012000900010076657468000000005c0002005800010000000000000000000000000000000000080003006162630008001c00000000000a0001000000000000000000080004000000000008000d00e803000008001f000100000008002000010000000800280001000000'),
    (Blank(4, 'i'), OpenBlank(20, 3, 1, (16,), ()), Blank(28, 'I'), Blank(36, '6s'), Blank(48, 'I'), Blank(112, 'i'), OpenBlank(128, 3, 1, (124,), (84, 100, 104)), Blank(136, 'I'), Blank(144, '6s'), Blank(156, 'I'),),
)
IFB = Template(
    16, 0x600, bytes.fromhex('00000000000000000100000001000000080003006162630008001c0000000000080004000000000008000d00e803000008001f000100000008002000010000000c0012000800010069666200'),
    (Blank(4, 'i'), OpenBlank(20, 3, 1, (16,), ()), Blank(28, 'I'), Blank(36, 'I'),),
)
DEVICE = Template(
    16, 0x600, bytes.fromhex('000000000000000000000000000000000c0012000800010061626300'),
    (OpenBlank(24, 3, 1, (20,), (16,)),),
)
LINK_UP = Template(
    19, 0x0, bytes.fromhex('00000000000000000100000001000000'),
    (Blank(4, 'i'),),
)
LINK_DOWN = Template(
    19, 0x0, bytes.fromhex('00000000000000000000000001000000'),
    (Blank(4, 'i'),),
)
GET_LINKS = Template(
    18, 0x0, bytes.fromhex('00000000000000000000000000000000'),
    (),
)
GET_LINKS_WITHOUT_STATISTICS = Template(
    18, 0x0, bytes.fromhex('0000000000000000000000000000000008001d0008000000'),
    (),
)
ADDRESS = Template(
    20, 0x600, bytes.fromhex('022000000000000008000200000000000800010000000000'),
    (Blank(4, 'I'), Blank(12, '4s'), Blank(20, '4s'),),
)
NEIGHBOUR = Template(
    28, 0x500, bytes.fromhex('02000000000000008000000008000100000000000a0002000000000000000000'),
    (Blank(4, 'i'), Blank(16, '4s'), Blank(24, '6s'),),
)
ROUTE = Template(
    24, 0x500, bytes.fromhex('02000000fe04000100000000'),
    (Blank(1, 'B'),),
)
ROUTE_ON_LINK = Template(
    24, 0x500, bytes.fromhex('02000000fe04000104000000'),
    (Blank(1, 'B'),),
)
ROUTE_UNREACHABLE = Template(
    24, 0x500, bytes.fromhex('02000000fe04000700000000'),
    (Blank(1, 'B'),),
)
ROUTE_DELETED = Template(
    25, 0x0, bytes.fromhex('02000000fe04ff0000000000'),
    (Blank(1, 'B'),),
)
ROUTE_TO = Template(
    0, 0x0, bytes.fromhex('0800010000000000'),
    (Blank(4, '4s'),),
)
ROUTE_SOURCE = Template(
    0, 0x0, bytes.fromhex('0800070000000000'),
    (Blank(4, '4s'),),
)
ROUTE_METRICS = Template(
    0, 0x0, bytes.fromhex('0800080061626364'),
    (OpenBlank(4, 4, 0, (0,), ()),),
)
METRIC_LOCK = Template(
    0, 0x0, bytes.fromhex('0800010000000000'),
    (Blank(4, 'I'),),
)
METRIC_MTU = Template(
    0, 0x0, bytes.fromhex('0800020000000000'),
    (Blank(4, 'I'),),
)
METRIC_WINDOW = Template(
    0, 0x0, bytes.fromhex('08000b0000000000'),
    (Blank(4, 'I'),),
)
METRIC_MIN_RTO = Template(
    0, 0x0, bytes.fromhex('08000d0000000000'),
    (Blank(4, 'I'),),
)
ROUTE_HOP = Template(
    0, 0x0, bytes.fromhex('08000400000000000800050000000000'),
    (Blank(4, 'I'), Blank(12, '4s'),),
)
ROUTE_HOPS = Template(
    0, 0x0, bytes.fromhex('0800090061626364'),
    (OpenBlank(4, 4, 0, (0,), ()),),
)
HOP = Template(
    0, 0x0, bytes.fromhex('10000400000000000800050000000000'),
    (Blank(3, 'B'), Blank(4, 'i'), Blank(12, '4s'),),
)
RDMA_DEVICE = Template(
    5123, 0x0, bytes.fromhex('080002006162630008004100727865000800330061626300'),
    (OpenBlank(4, 3, 1, (0,), ()), OpenBlank(20, 3, 1, (16,), ()),),
)
RDMA_DEVICE_DELETED = Template(
    5124, 0x0, bytes.fromhex('0800010000000000'),
    (Blank(4, 'I'),),
)
GET_RDMA_DEVICES = Template(
    5121, 0x0, bytes.fromhex(''),
    (),
)
QDISC = Template(
    36, 0x500, bytes.fromhex('00000000000000000000000000000000000000000800010061626300'),
    (Blank(4, 'i'), Blank(8, 'I'), Blank(12, 'I'), OpenBlank(24, 3, 1, (20,), ()),),
)
QDISC_WITH_OPTIONS = Template(
    36, 0x500, bytes.fromhex('000000000000000000000000000000000000000008000100616263000800020061626364'),
    (Blank(4, 'i'), Blank(8, 'I'), Blank(12, 'I'), OpenBlank(24, 3, 1, (20,), ()), OpenBlank(32, 4, 0, (28,), ()),),
)
QDISC_CHANGED = Template(
    36, 0x0, bytes.fromhex('000000000000000000000000000000000000000008000100616263000800020061626364'),
    (Blank(4, 'i'), Blank(8, 'I'), Blank(12, 'I'), OpenBlank(24, 3, 1, (20,), ()), OpenBlank(32, 4, 0, (28,), ()),),
)
QDISC_DELETED = Template(
    37, 0x0, bytes.fromhex('000000000000000000000000ffffffff00000000'),
    (Blank(4, 'i'),),
)
GET_QDISCS = Template(
    38, 0x0, bytes.fromhex('0000000000000000000000000000000000000000'),
    (),
)
HOOKS = Template(
    36, 0x600, bytes.fromhex('00000000000000000000fffff1ffffff000000000b000100636c736163740000'),
    (Blank(4, 'i'),),
)
REDIRECT = Template(
    44, 0x600, bytes.fromhex('000000000000000000000000f2ffffff000303000d0001006d61746368616c6c000000003c00020038000200340001000b0001006d69727265640000240002802000020000000000000000000400000000000000000000000100000000000000'),
    (Blank(4, 'i'), Blank(92, 'I'),),
)
CLASSIFIER_OF_ARRIVING = Template(
    44, 0x600, bytes.fromhex('000000000000000000000000f2ffffff0003000008000100627066002c000200080003000000000008000600000000000f00070067726f756e647769726500000800080001000000'),
    (Blank(4, 'i'), Blank(18, 'H'), Blank(36, 'I'), Blank(44, 'I'),),
)
CLASSIFIER_OF_LEAVING = Template(
    44, 0x600, bytes.fromhex('000000000000000000000000f3ffffff0003000008000100627066002c000200080003000000000008000600000000000f00070067726f756e647769726500000800080001000000'),
    (Blank(4, 'i'), Blank(18, 'H'), Blank(36, 'I'), Blank(44, 'I'),),
)
DRR_CLASS = Template(
    40, 0x600, bytes.fromhex('000000000000000000000000000000000000000008000100647272000c0002000800010000000000'),
    (Blank(4, 'i'), Blank(8, 'I'), Blank(12, 'I'), Blank(36, 'I'),),
)
BFIFO = Template(
    0, 0x0, bytes.fromhex('00000000'),
    (Blank(0, 'I'),),
)
CODEL = Template(
    0, 0x0, bytes.fromhex('0800010000000000080002000000000008000300000000000800040000000000'),
    (Blank(4, 'I'), Blank(12, 'I'), Blank(20, 'I'), Blank(28, 'I'),),
)
CODEL_CE = Template(
    0, 0x0, bytes.fromhex('0800050000000000'),
    (Blank(4, 'I'),),
)
FQ_CODEL = Template(
    0, 0x0, bytes.fromhex('080001000000000008000200000000000800030000000000080004000000000008000500000000000800060000000000'),
    (Blank(4, 'I'), Blank(12, 'I'), Blank(20, 'I'), Blank(28, 'I'), Blank(36, 'I'), Blank(44, 'I'),),
)
FQ_CODEL_CE = Template(
    0, 0x0, bytes.fromhex('0800070000000000'),
    (Blank(4, 'I'),),
)
GWPORT = Template(
    0, 0x0, bytes.fromhex('dc000100000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'),
    (Blank(4, 'Q'), Blank(12, 'Q'), Blank(20, 'Q'), Blank(28, 'Q'), Blank(36, 'Q'), Blank(44, 'Q'), Blank(52, 'Q'), Blank(60, 'Q'), Blank(68, 'Q'), Blank(76, 'Q'), Blank(84, 'Q'), Blank(92, 'Q'), Blank(100, 'Q'), Blank(108, 'Q'), Blank(116, 'Q'), Blank(124, 'Q'), Blank(132, 'Q'), Blank(140, 'I'), Blank(144, 'I'), Blank(148, 'I'), Blank(152, 'I'), Blank(156, 'I'), Blank(160, 'I'), Blank(164, 'I'), Blank(168, 'I'), Blank(172, 'I'), Blank(176, 'I'), Blank(180, 'I'), Blank(184, 'I'), Blank(188, 'I'), Blank(192, 'I'), Blank(196, 'I'), Blank(200, 'I'), Blank(204, 'I'), Blank(208, 'I'), Blank(212, 'I'), Blank(216, 'I'),),
)
GWPORT_CLASSES = Template(
    0, 0x0, bytes.fromhex('0800020061626364'),
    (OpenBlank(4, 4, 0, (0,), ()),),
)
NETEM = Template(
    0, 0x0, bytes.fromhex('0000000000000000000000000000000000000000000000000c00040000000000000000001400060000000000000000000000000000000000'),
    (Blank(4, 'I'), Blank(8, 'I'), Blank(28, 'I'), Blank(40, 'I'), Blank(44, 'i'),),
)
NETEM_RATE = Template(
    0, 0x0, bytes.fromhex('0c0008000000000000000000'),
    (Blank(4, 'Q'),),
)
NETEM_LATENCY = Template(
    0, 0x0, bytes.fromhex('0c000a000000000000000000'),
    (Blank(4, 'q'),),
)
PLUG = Template(
    0, 0x0, bytes.fromhex('0000000000000000'),
    (Blank(0, 'i'), Blank(4, 'I'),),
)
PRIO = Template(
    0, 0x0, bytes.fromhex('0000000001010101010101010101010101010101'),
    (Blank(0, 'i'), Blank(4, '16s'),),
)
RED = Template(
    0, 0x0, bytes.fromhex('1400010000000000000000000000000000000000080002006162636408000300000000000c0004000000000000000000'),
    (Blank(4, 'I'), Blank(8, 'I'), Blank(12, 'I'), Blank(16, 'B'), Blank(18, 'B'), OpenBlank(24, 4, 0, (20,), ()), Blank(32, 'I'), Blank(40, 'I'), Blank(44, 'I'),),
)
TBF = Template(
    0, 0x0, bytes.fromhex('280001000001000000000000000000000000000000000000000000000000000000000000000000000800060000000000'),
    (Blank(6, 'H'), Blank(12, 'I'), Blank(28, 'I'), Blank(44, 'I'),),
)
TBF_RATE = Template(
    0, 0x0, bytes.fromhex('0c0004000000000000000000'),
    (Blank(4, 'Q'),),
)
GENERIC_FAMILIES = Template(
    16, 0x0, bytes.fromhex('03010000'),
    (),
)
SUBFLOW = Template(
    0, 0x0, bytes.fromhex('0a01000008000400000000001c0001000600010002000000050002000000000008000300000000001c000600060001000200000008000300000000000600050000000000'),
    (Blank(8, 'I'), Blank(28, 'B'), Blank(36, '4s'), Blank(56, '4s'), Blank(64, 'H'),),
)
ADDRESS6 = Template(
    20, 0x600, bytes.fromhex('0a800000000000001400020000000000000000000000000000000000'),
    (Blank(4, 'I'), Blank(12, '16s'),),
)
NEIGHBOUR6 = Template(
    28, 0x500, bytes.fromhex('0a000000000000008000000014000100000000000000000000000000000000000a0002000000000000000000'),
    (Blank(4, 'i'), Blank(16, '16s'), Blank(36, '6s'),),
)
ROUTE6 = Template(
    24, 0x500, bytes.fromhex('0a000000fe04000100000000140001000000000000000000000000000000000008000400000000001400050000000000000000000000000000000000'),
    (Blank(1, 'B'), Blank(16, '16s'), Blank(36, 'I'), Blank(44, '16s'),),
)
SEGMENT_OF_SWITCH = Template(
    24, 0x500, bytes.fromhex('0a000000fe040001000000001400010000000000000000000000000000000000080004000000000006001500070000002800160008000100010000001c000b00080001001000000005000200000000000500030000000000'),
    (Blank(1, 'B'), Blank(16, '16s'), Blank(36, 'I'), Blank(76, 'B'), Blank(84, 'B'),),
)
SEGMENT_OF_HOST = Template(
    24, 0x500, bytes.fromhex('0a000000fe040001000000001400010000000000000000000000000000000000080004000000000006001500070000001400160008000100060000000800040000000000'),
    (Blank(1, 'B'), Blank(16, '16s'), Blank(36, 'I'),),
)
WRAPPING_HOP = Template(
    0, 0x0, bytes.fromhex('3c0004000000000008000500000000000600150005000000240016002000010003000000000204000000000000000000000000000000000000000000'),
    (Blank(4, 'i'), Blank(12, '4s'), Blank(44, '16s'),),
)
NEXT_HOP = Template(
    104, 0x500, bytes.fromhex('0200040004000000080001000000000008000500000000000800060000000000'),
    (Blank(12, 'I'), Blank(20, 'I'), Blank(28, '4s'),),
)
RESILIENT_GROUP = Template(
    104, 0x500, bytes.fromhex('00000400000000000800010000000000080002006162636406000300010000001c000c80060001000000000008000200000000000800030000000000'),
    (Blank(12, 'I'), OpenBlank(20, 4, 0, (16,), ()), Blank(40, 'H'), Blank(48, 'I'), Blank(56, 'I'),),
)
NEXT_HOP_DELETED = Template(
    105, 0x0, bytes.fromhex('00000000000000000800010000000000'),
    (Blank(12, 'I'),),
)
ROUTE_BY_GROUP = Template(
    0, 0x0, bytes.fromhex('08001e0000000000'),
    (Blank(4, 'I'),),
)
