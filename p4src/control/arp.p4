// SPDX-License-Identifier: MIT
// The switch answers ARP requests for its aggregator address.

control Arp(inout headers_t hdr, in metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        hdr.ethernet.dst_addr = hdr.arp.sender_mac;
        hdr.ethernet.src_addr = meta.my_mac;
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = meta.my_mac;
        hdr.arp.sender_ip = meta.target_ip;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
    }
}
