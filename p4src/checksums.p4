// SPDX-License-Identifier: MIT
// Checksums: a contribution's IPv4 checksum is always verified, its UDP checksum when it carries one (our hosts send 0, "not
// computed", because a software switch pays for every byte that it sums). The switch sends right IPv4 checksums, and 0 for UDP.
// Where it passes on a packet with other addresses (memory), it adjusts both (RFC 1624), so that what was wrong stays wrong.

#ifndef CHECKSUMS_P4
#define CHECKSUMS_P4

#include "headers.p4"

#define IPV4_FIELDS { hdr.ipv4.version_ihl_tos, hdr.ipv4.total_length, hdr.ipv4.identification_fragment, \
                      hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr }

#define NETSUM_FIELDS hdr.netsum.job_id, hdr.netsum.block_id, hdr.netsum.age_op, hdr.netsum.final, hdr.netsum.degraded, \
                      hdr.netsum.reserved_flags, hdr.netsum.src_id, hdr.netsum.src_cnt, hdr.netsum.gen_id, \
                      hdr.netsum.reserved_cnt, hdr.netsum.grad_cnt, hdr.netsum.version, hdr.netsum.op, hdr.netsum.lane, \
                      hdr.netsum.status, hdr.netsum.no_aging, hdr.netsum.backoff, hdr.netsum.query, hdr.netsum.early, \
                      hdr.netsum.hop, hdr.netsum.reserved, hdr.netsum.reason, hdr.netsum.dest, hdr.netsum.worker_cnt, \
                      hdr.netsum.data_cnt, hdr.netsum.lane_cnt, hdr.netsum.call_fingerprint, hdr.netsum.receiver_id, \
                      hdr.netsum.key

#define CHUNKS1(h) h.f0
#define CHUNKS2(h) CHUNKS1(h), h.f1
#define CHUNKS4(h) CHUNKS2(h), h.f2, h.f3
#define CHUNKS8(h) CHUNKS4(h), h.f4, h.f5, h.f6, h.f7

// "With payload" means with the bytes that the parser has not extracted, so the sum names every field that it may have
// extracted. v1model's checksums skip the fields of headers that are not in the packet.
control NetsumVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.netsum.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
        // 0xffff stands for a sum of zero, which csum16 does not produce: such a packet is taken unverified.
        verify_checksum_with_payload(
            hdr.netsum.isValid() && hdr.udp.checksum != 0 && hdr.udp.checksum != 0xffff,
            { hdr.ipv4.src_addr, hdr.ipv4.dst_addr, 8w0, hdr.ipv4.protocol, hdr.udp.length,
              hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.length, NETSUM_FIELDS,
              CHUNKS8(hdr.chunks16), hdr.chunks16.f8, hdr.chunks16.f9, hdr.chunks16.f10, hdr.chunks16.f11,
              hdr.chunks16.f12, hdr.chunks16.f13, hdr.chunks16.f14, hdr.chunks16.f15,
              CHUNKS8(hdr.chunks8), CHUNKS4(hdr.chunks4), CHUNKS2(hdr.chunks2), CHUNKS1(hdr.chunks1) },
            hdr.udp.checksum, HashAlgorithm.csum16);
    }
}

control NetsumUpdateChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.my_mac != 0 && hdr.ipv4.isValid(), IPV4_FIELDS, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

#ifdef WITH_MEMORY
// Memory: what a checksum changes by is a sum of 16-bit words, with each old word's complement. Both sums are needed up to here
// only, so each is folded where it is, and needs no variable.
#define OLD(word)    (bit<32>)(~(word))
#define OLD2(words)  (OLD(words[31:16]) + OLD(words[15:0]))
#define NEW(word)    (bit<32>)(word)
#define NEW2(words)  (NEW(words[31:16]) + NEW(words[15:0]))
#define ADJUST(checksum, change) \
    change = change + OLD(checksum); \
    change = NEW2(change); \
    change = NEW2(change); \
    checksum = ~change[15:0];

control AdjustChecksums(inout headers_t hdr, inout metadata_t meta) {
    action ipv4() {
        ADJUST(hdr.ipv4.checksum, meta.ipv4_change)
    }
    action udp() {
        ADJUST(hdr.udp.checksum, meta.udp_change)
    }
    apply {
        ipv4();
        if (hdr.udp.checksum != 0) {
            udp();
            if (hdr.udp.checksum == 0) {
                hdr.udp.checksum = 0xffff;
            }
        }
    }
}
#endif

#endif
