// Checksums: a contribution's IPv4 header is always verified, its UDP checksum when it carries one (our hosts send 0,
// "not computed", because a software switch pays for every byte it sums). What we send has a right IPv4 checksum and
// UDP checksum 0.

#ifndef CHECKSUMS_P4
#define CHECKSUMS_P4

#include "headers.p4"

#define IPV4_FIELDS { hdr.ipv4.version_ihl, hdr.ipv4.tos, hdr.ipv4.total_length, hdr.ipv4.identification, \
                      hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr }

control NetsumVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.netsum.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        // 0xffff stands for a sum of zero, which csum16 does not produce: such a packet is taken unverified.
        verify_checksum_with_payload(
            hdr.netsum.isValid() && hdr.udp.checksum != 0 && hdr.udp.checksum != 0xffff,
            { hdr.ipv4.src_addr, hdr.ipv4.dst_addr, 8w0, hdr.ipv4.protocol, hdr.udp.length,
              hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.length },
            hdr.udp.checksum, HashAlgorithm.csum16);
    }
}

control NetsumUpdateChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.aggregator_mac != 0 && hdr.ipv4.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

#endif
