// SPDX-License-Identifier: MIT
// What several stages do to a packet's payload.

#ifndef PAYLOAD_P4
#define PAYLOAD_P4

#include "headers.p4"

control DropPayload(inout headers_t hdr) {
    apply {
        hdr.chunks16.setInvalid();
        hdr.chunks8.setInvalid();
        hdr.chunks4.setInvalid();
        hdr.chunks2.setInvalid();
        hdr.chunks1.setInvalid();
    }
}

// Makes IPv4 and UDP say so many bytes of payload.
control SetLengths(inout headers_t hdr, in bit<16> payload) {
    apply {
        hdr.udp.length = payload + HEADERS;
        hdr.ipv4.total_length = payload + (IPV4_BYTES + HEADERS);
    }
}

control HeaderOnly(inout headers_t hdr) {
    SetLengths()  set_lengths;
    DropPayload() drop_payload;

    apply {
        set_lengths.apply(hdr, 0);
        hdr.netsum.grad_cnt = 0;
        hdr.netsum.lane_cnt = 0;
        drop_payload.apply(hdr);
    }
}

#endif
