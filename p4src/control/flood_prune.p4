// SPDX-License-Identifier: MIT
// Egress: a flooded frame does not go back to the port that it came from.

control FloodPrune(inout standard_metadata_t standard_metadata) {
    apply {
        if (standard_metadata.mcast_grp == FLOOD_GROUP && standard_metadata.egress_port == standard_metadata.ingress_port) {
            mark_to_drop(standard_metadata);
        }
    }
}
