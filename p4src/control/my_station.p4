// SPDX-License-Identifier: MIT
// Is the packet for the switch's own address? Then it is an ARP request, answered by arp.p4, or a contribution. Packets for the
// address of another switch go nowhere: hosts send to their own switch, and switches to their neighbors. All switches answer for
// the virtual address of memory.

control MyStation(inout headers_t hdr, inout metadata_t meta) {
    @id(SET_MY_MAC)
    action set_my_mac(bit<48> mac) {
        meta.my_mac = mac;
    }
    @id(REJECT_TRANSIT)
    action reject_transit() {
        if (hdr.netsum.isValid()) {
            meta.not_admitted = 1;
        }
    }
    @id(SET_VIRTUAL_MAC)
    action set_virtual_mac(bit<48> mac) {
        if (hdr.memory.isValid()) {
            meta.from = FROM_CLIENT;
        } else if (hdr.arp.isValid()) {
            meta.my_mac = mac;
        } else {
            meta.not_admitted = 1;
        }
    }
    @id(MY_STATION_TABLE)
    table my_station {
        key = { meta.address: exact @name("address"); }
        actions = { set_my_mac; reject_transit; set_virtual_mac; NoAction; }
        const default_action = NoAction();
        size = 1024;
    }
    apply {
        my_station.apply();
    }
}
