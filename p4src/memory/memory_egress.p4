// SPDX-License-Identifier: MIT
// Egress: every copy of an instruction gets its device's addresses. A host that asks a device of its own gets it from the virtual
// address, since Linux drops what comes from its own; it replies to there, and the switch sends that back (memory.p4).

control MemoryEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    AdjustChecksums() adjust_checksums;

    @id(SET_DEVICE)
    action set_device(bit<48> mac, bit<32> ip) {
        meta.address = ip;
        hdr.ethernet.src_addr = hdr.ethernet.dst_addr;
        hdr.ethernet.dst_addr = mac;
    }
    @id(DEVICE_DROP)
    action drop() {
        mark_to_drop(standard_metadata);
        meta.address = 0;
    }
    @id(DEVICE_TABLE)
    table device {
        key = { standard_metadata.egress_rid: exact @name("device"); }
        actions = { set_device; drop; }
        const default_action = drop();
        size = 1024;
    }
    action to_own_host() {
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.ipv4.dst_addr = meta.address;
        meta.epoch = 0;    // IPv4's stays
    }
    action to_other_host() {
        meta.epoch = OLD2(hdr.ipv4.dst_addr) + NEW2(meta.address);
        hdr.ipv4.dst_addr = meta.address;
        meta.slot = meta.slot + meta.epoch;
    }
    apply {
        device.apply();
        if (meta.address == hdr.ipv4.src_addr) {
            to_own_host();
        } else {
            to_other_host();
        }
        adjust_checksums.apply(hdr, meta);
    }
}
