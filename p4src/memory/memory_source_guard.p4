// SPDX-License-Identifier: MIT
// Who may speak on memory's UDP port, other than to the virtual address: devices, to clients and to each other, and other
// switches, which have looked already. From any other host a packet is not admitted, so that no host replies in a device's
// place, and none asks a device past the switch. A device's replies to clients get the virtual address.

control MemorySourceGuard(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    AdjustChecksums() adjust_checksums;

    @id(ACTION_FROM_DEVICE)
    action from_device(ipv4_addr_t virtual_address, mac_addr_t virtual_mac) {
        meta.virtual_ip = virtual_address;
        meta.my_mac = virtual_mac;
    }
    @id(ACTION_FROM_SWITCH)
    action from_switch() { }
    @id(ACTION_FROM_OTHER)
    action from_other() {
        meta.not_admitted = 1;
    }
    @id(MEMORY_SOURCE_TABLE)
    table memory_source {
        key = { standard_metadata.ingress_port: exact @name("ingress_port"); }
        actions = { from_device; from_switch; from_other; }
        const default_action = from_other();
        size = 512;
    }
    action from_virtual_address() {
        meta.ipv4_change = OLD2(hdr.ipv4.src_addr) + NEW2(meta.virtual_ip);
        meta.udp_change = meta.ipv4_change;
        hdr.ipv4.src_addr = meta.virtual_ip;
        hdr.ethernet.src_addr = meta.my_mac;
    }
    apply {
        memory_source.apply();
        if (meta.not_admitted == 0 && meta.virtual_ip != 0 && hdr.udp.dst_port != MEMORY_PORT) {
            from_virtual_address();
            adjust_checksums.apply(hdr, meta);
        }
        meta.my_mac = 0;    // it is not for the switch itself
    }
}
