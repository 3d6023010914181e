// SPDX-License-Identifier: MIT
// Is the packet for the switch's own address? Then it is an ARP request, answered by arp.p4, or a contribution. Packets for the
// address of another switch go nowhere: hosts send to their own switch, and switches to their neighbors. All switches answer for
// the virtual address of memory.

control MyStation(inout headers_t hdr, inout metadata_t meta) {
    @id(ACTION_SET_MY_MAC)
    action set_my_mac(mac_addr_t mac) {
        meta.my_mac = mac;
    }
    @id(ACTION_REJECT_TRANSIT)
    action reject_transit() {
        if (hdr.netsum.isValid()) {
            meta.not_admitted = 1;
        }
    }
    @id(ACTION_SET_VIRTUAL_MAC)
    action set_virtual_mac(mac_addr_t mac) {
#ifdef WITH_MEMORY
        if (hdr.memory.isValid()) {
            meta.from = sender_t.CLIENT;
        } else
#endif
        if (hdr.arp.isValid()) {
            meta.my_mac = mac;
        } else {
            meta.not_admitted = 1;
        }
    }
    @id(MY_STATION_TABLE)
    table my_station {
        key = { meta.target_ip: exact @name("address"); }
        actions = { set_my_mac; reject_transit; set_virtual_mac; NoAction; }
        const default_action = NoAction();
        size = 1024;
    }
    apply {
        my_station.apply();
    }
}
