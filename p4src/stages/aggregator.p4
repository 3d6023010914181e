// Is the packet for the switch's own address? Then it is an ARP request, answered by arp.p4, or a contribution. Packets for the
// address of another switch go nowhere: hosts send to their own switch, and switches to their neighbors. All switches answer for
// the virtual address of memory.

control Aggregator(inout headers_t hdr, inout metadata_t meta) {
    @id(AGGREGATOR_HERE)
    action aggregator_here(bit<48> mac) {
        meta.aggregator_mac = mac;
    }
    @id(ELSEWHERE)
    action elsewhere() {
        if (hdr.netsum.isValid()) {
            meta.unwelcome = 1;
        }
    }
    @id(VIRTUAL_HERE)
    action virtual_here(bit<48> mac) {
        if (hdr.memory.isValid()) {
            meta.from = FROM_CLIENT;
        } else if (hdr.arp.isValid()) {
            meta.aggregator_mac = mac;
        } else {
            meta.unwelcome = 1;
        }
    }
    @id(AGGREGATOR_TABLE)
    table aggregator {
        key = { meta.address: exact @name("address"); }
        actions = { aggregator_here; elsewhere; virtual_here; NoAction; }
        const default_action = NoAction();
        size = 1024;
    }
    apply {
        aggregator.apply();
    }
}
