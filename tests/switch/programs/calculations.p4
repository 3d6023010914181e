// Checksums with and without payload, verified and updated; hashes; random numbers; parser errors.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
header ipv4_t {
    bit<8> version_ihl; bit<8> tos; bit<16> total_length; bit<16> identification; bit<16> fragment; bit<8> ttl;
    bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
header udp_t { bit<16> src_port; bit<16> dst_port; bit<16> length; bit<16> checksum; }
header inner_t { bit<32> word; }
header result_t {
    bit<8> checksum_error; bit<8> parser_error; bit<16> csum; bit<16> crc; bit<32> crc32; bit<16> exclusive; bit<16> ccitt;
    bit<32> same; bit<16> bounded; bit<8> random; bit<32> next; bit<16> with_payload;
}
struct headers_t { ethernet_t ethernet; result_t result; ipv4_t ipv4; udp_t udp; inner_t inner; }
struct metadata_t { bit<32> next; bit<9> nine; }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        meta.next = packet.lookahead<bit<32>>();
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version_ihl[7:4] == 4, error.HeaderTooShort);
        packet.advance(((bit<32>)hdr.ipv4.version_ihl[3:0] - 5) << 5);
        transition select(hdr.ipv4.protocol, hdr.ipv4.fragment) {
            (17, 0): udp;
            (18, _): inner_only;
            (19, 0x20 &&& 0x20): accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) { 7: inner_only; default: accept; }
    }
    state inner_only { packet.extract(hdr.inner); transition accept; }
}
control VerifyImpl(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(true, { hdr.ipv4.version_ihl, hdr.ipv4.tos, hdr.ipv4.total_length, hdr.ipv4.identification,
            hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst }, hdr.ipv4.checksum,
            HashAlgorithm.csum16);
        verify_checksum_with_payload(hdr.udp.isValid() && hdr.udp.checksum != 0, { hdr.ipv4.src, hdr.ipv4.dst, 8w0,
            hdr.ipv4.protocol, hdr.udp.length, hdr.udp.src_port, hdr.udp.dst_port, hdr.udp.length }, hdr.udp.checksum,
            HashAlgorithm.csum16);
    }
}
control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port;
        hdr.result.setValid();
        hdr.result.checksum_error = (bit<8>)standard.checksum_error;
        if (standard.parser_error == error.NoError) { hdr.result.parser_error = 0; }
        else if (standard.parser_error == error.PacketTooShort) { hdr.result.parser_error = 1; }
        else if (standard.parser_error == error.NoMatch) { hdr.result.parser_error = 2; }
        else if (standard.parser_error == error.HeaderTooShort) { hdr.result.parser_error = 4; }
        else if (standard.parser_error == error.ParserInvalidArgument) { hdr.result.parser_error = 6; }
        else { hdr.result.parser_error = 9; }
        hdr.result.next = meta.next;
        meta.nine = 0x155;
        hash(hdr.result.csum, HashAlgorithm.csum16, 16w0, { hdr.ipv4.src, hdr.ipv4.dst }, 32w0x10000);
        hash(hdr.result.crc, HashAlgorithm.crc16, 16w0, { hdr.ipv4.src, hdr.ipv4.dst, meta.nine, hdr.inner.word }, 32w0x10000);
        hash(hdr.result.crc32, HashAlgorithm.crc32, 32w0, { hdr.ipv4.src, hdr.ipv4.dst, meta.nine }, 64w0x100000000);
        hash(hdr.result.exclusive, HashAlgorithm.xor16, 16w0, { hdr.ipv4.src, hdr.ipv4.dst, hdr.ipv4.ttl }, 32w0x10000);
        hash(hdr.result.ccitt, HashAlgorithm.crc16, 16w0, { 16w7, hdr.ipv4.ttl }, 32w0x10000);
        hash(hdr.result.same, HashAlgorithm.identity, 32w0, { hdr.ipv4.dst }, 64w0x100000000);
        hash(hdr.result.bounded, HashAlgorithm.crc32, 16w1000, { hdr.ipv4.src, hdr.ipv4.dst }, 32w10);
        random(hdr.result.random, 8w5, 8w9);
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }
}
control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control ComputeImpl(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.tos != 0xff, { hdr.ipv4.version_ihl, hdr.ipv4.tos,
            hdr.ipv4.total_length, hdr.ipv4.identification, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src,
            hdr.ipv4.dst }, hdr.ipv4.checksum, HashAlgorithm.csum16);
        update_checksum_with_payload(true, { hdr.ipv4.src, hdr.udp.length }, hdr.result.with_payload, HashAlgorithm.csum16);
    }
}
control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet); packet.emit(hdr.result); packet.emit(hdr.ipv4); packet.emit(hdr.udp);
        packet.emit(hdr.inner);
    }
}
V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
