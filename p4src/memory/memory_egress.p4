// SPDX-License-Identifier: MIT
// Egress: every copy of an instruction gets its device's addresses. A host that asks a device of its own gets it from the virtual
// address, since Linux drops what comes from its own; it replies to there, and the switch sends that back (memory.p4).

control MemoryEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    AdjustChecksums() adjust_checksums;

    @id(ACTION_SET_DEVICE)
    action set_device(mac_addr_t mac, ipv4_addr_t ip) {
        meta.device_ip = ip;
        hdr.ethernet.src_addr = hdr.ethernet.dst_addr;
        hdr.ethernet.dst_addr = mac;
    }
    @id(ACTION_DEVICE_DROP)
    action drop() {
        mark_to_drop(standard_metadata);
        meta.device_ip = 0;
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
        hdr.ipv4.dst_addr = meta.device_ip;
    }
    action to_other_host() {
        meta.ipv4_change = OLD2(hdr.ipv4.dst_addr) + NEW2(meta.device_ip);
        hdr.ipv4.dst_addr = meta.device_ip;
        meta.udp_change = meta.udp_change + meta.ipv4_change;
    }
    apply {
        device.apply();
        if (meta.device_ip == hdr.ipv4.src_addr) {
            to_own_host();
        } else {
            to_other_host();
        }
        adjust_checksums.apply(hdr, meta);
    }
}
