// SPDX-License-Identifier: MIT
// Counts what comes in at each port, in packets and bytes of whole frames. BMv2 knows no length at egress, so what leaves through
// a link is counted at its other end.

control PortCounters(in headers_t hdr, in standard_metadata_t standard_metadata) {
    @id(PORTS_COUNTER)
    counter<bit<9>>(512, CounterType.packets_and_bytes) ports;

    apply {
        if (!hdr.packet_out.isValid()) {
            ports.count(standard_metadata.ingress_port);
        }
    }
}
