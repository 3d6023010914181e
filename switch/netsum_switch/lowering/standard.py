"""What v1model's standard metadata means to simple_switch."""

# simple_switch's PKT_INSTANCE_TYPE_*
NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRC, REPLICATION, RESUBMIT = 0, 1, 2, 4, 5, 6

# What is set again when a copy of a packet enters egress.
EGRESS_FIELDS = (
    "egress_port", "egress_rid", "egress_spec", "packet_length", "instance_type", "egress_global_timestamp",
    "enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth",
)  # fmt: skip
