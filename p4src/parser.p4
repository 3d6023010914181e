// SPDX-License-Identifier: MIT
// Ethernet / ARP, or Ethernet / IPv4 / UDP / netsum / payload, or the same with memory's header for netsum's. A packet that
// leaves this path early is not netsum's and is forwarded; control/check.p4 finds those that claim to be netsum's and are
// malformed.

#ifndef PARSER_P4
#define PARSER_P4

#include "headers.p4"

parser NetsumParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: cpu;
            0:        port0;
            default:  ethernet;
        }
    }
    state port0 {
        // Recirculated packets come in through port 0. All of them are scans.
        transition select(standard_metadata.instance_type) {
            RECIRCULATED: cpu;
            default:      ethernet;
        }
    }
    state cpu {
        packet.extract(hdr.packet_out);
        meta.from = sender_t.CONTROLLER;
        transition select(hdr.packet_out.kind) {
            packet_out_kind_t.SCAN: ethernet;
            default:    accept;
        }
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_ARP:  arp;
            default:        accept;
        }
    }
    state arp {
        packet.extract(hdr.arp);
        transition select(hdr.arp.operation) {
            ARP_REQUEST: arp_request;
            default:     accept;
        }
    }
    state arp_request {
        meta.target_ip = hdr.arp.target_ip;
        transition accept;
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        // Packets with options, fragments and other protocols are not ours.
        transition select(hdr.ipv4.version_ihl_tos, hdr.ipv4.identification_fragment, hdr.ipv4.protocol) {
            (0x4500 &&& 0xff00, 0 &&& 0x3fff, PROTOCOL_UDP): udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            NETSUM_PORT: netsum;
#ifdef WITH_MEMORY
            MEMORY_PORT: memory;
            default:     other_udp;
        }
    }
    state other_udp {
        transition select(hdr.udp.src_port) {
            MEMORY_PORT: memory;    // a reply
            default:     accept;
        }
    }
    state memory {
        packet.extract(hdr.memory);
        meta.target_ip = hdr.ipv4.dst_addr;
        transition accept;
    }
#else
            default:     accept;
        }
    }
#endif
    state netsum {
        packet.extract(hdr.netsum);
        meta.target_ip = hdr.ipv4.dst_addr;
        // UDP's length is that of the headers + 256 * chunks: bits 8..12 are the chunks.
        transition select(hdr.udp.length) {
            HEADERS + 0x1000:   chunks16;
            HEADERS &&& 0xf0ff: chunks8_or_less;
            default:            accept;
        }
    }
    state chunks16 {
        packet.extract(hdr.chunks16);
        transition accept;
    }
    state chunks8_or_less {
        transition select(hdr.udp.length) {
            HEADERS:           accept;
            0x0800 &&& 0x0800: chunks8;
            default:           chunks4_or_less;
        }
    }
    state chunks8 {
        packet.extract(hdr.chunks8);
        transition chunks4_or_less;
    }
    state chunks4_or_less {
        transition select(hdr.udp.length) {
            0x0400 &&& 0x0400: chunks4;
            default:           chunks2_or_less;
        }
    }
    state chunks4 {
        packet.extract(hdr.chunks4);
        transition chunks2_or_less;
    }
    state chunks2_or_less {
        transition select(hdr.udp.length) {
            0x0200 &&& 0x0200: chunks2;
            default:           chunks1_or_less;
        }
    }
    state chunks2 {
        packet.extract(hdr.chunks2);
        transition chunks1_or_less;
    }
    state chunks1_or_less {
        transition select(hdr.udp.length) {
            0x0100 &&& 0x0100: chunks1;
            default:           accept;
        }
    }
    state chunks1 {
        packet.extract(hdr.chunks1);
        transition accept;
    }
}

control NetsumDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_out);
        packet.emit(hdr.packet_in);
        packet.emit(hdr.record);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.netsum);
#ifdef WITH_MEMORY
        packet.emit(hdr.memory);
#endif
        packet.emit(hdr.chunks16);
        packet.emit(hdr.chunks8);
        packet.emit(hdr.chunks4);
        packet.emit(hdr.chunks2);
        packet.emit(hdr.chunks1);
    }
}

#endif
