// What comes in at each port, in packets and bytes of whole frames. BMv2 knows no length at egress, so what goes out of a link's
// one end is read at its other.

control Ports(in headers_t hdr, in standard_metadata_t standard) {
    counter(512, CounterType.packets_and_bytes) ports;

    apply {
        if (!hdr.packet_out.isValid()) {
            ports.count((bit<32>)standard.ingress_port);
        }
    }
}
