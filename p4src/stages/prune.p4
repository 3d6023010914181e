// Egress: a flooded frame does not go back to the port that it came from.

control Prune(inout standard_metadata_t standard) {
    apply {
        if (standard.mcast_grp == FLOOD_GROUP && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}
