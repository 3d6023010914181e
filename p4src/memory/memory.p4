// SPDX-License-Identifier: MIT
// The switch as the memory's MMU: the virtual address in an instruction says which region, which shard of it, and so which
// device. What changes nothing goes to the shard's primary device; all else, where the shard has backups, to all of its devices
// at once. Shards are dealt out by bits of the address, so that neighboring granules are on different devices. What has no
// region is answered here.

// What any device of a shard may do without the others knowing of it. A chain changes nothing before its last segment.
#define CHANGES_NOTHING(h) (INSTRUCTION_IS_IDEMPOTENT(h.instruction) \
    || (h.instruction == instruction_t.SUM_FORWARD && h.segments != 0))

const bit<32> ANSWER_BYTES = 98;    // of a frame: Ethernet, IPv4, UDP and the header
const bit<16> ANSWER_LENGTH = UDP_BYTES + MEMORY_HEADER_BYTES;

control Memory(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    AdjustChecksums() adjust_checksums;

    @id(REGION_COUNTER)
    direct_counter(CounterType.packets_and_bytes) region_traffic;

    // To the sender (source_guard.p4 has left that address), from whom it was sent to. What is swapped changes no checksum.
    action back() {
        meta.my_mac = hdr.ethernet.dst_addr;
        hdr.ethernet.dst_addr = hdr.ethernet.src_addr;
        hdr.ethernet.src_addr = meta.my_mac;
        meta.my_mac = 0;
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.ipv4.dst_addr = meta.sender_ip;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        meta.reply = reply_t.ANSWER;
    }
    action answer(memory_status_t status) {
        hdr.memory.flags = FLAG_REPLY;
        hdr.memory.status = status;
    }
    action swap_ports() {
        hdr.udp.dst_port = hdr.udp.src_port;
        hdr.udp.src_port = MEMORY_PORT;
    }
    action header_alone() {
        meta.ipv4_change = OLD(hdr.ipv4.total_length) + NEW(IPV4_BYTES + ANSWER_LENGTH);
        hdr.ipv4.total_length = IPV4_BYTES + ANSWER_LENGTH;
        hdr.udp.length = ANSWER_LENGTH;
        hdr.udp.checksum = 0;
        hdr.memory.segments = 0;
        hdr.memory.length = 0;
        hdr.memory.replica = 0;
        hdr.memory.key = 0;
        truncate(ANSWER_BYTES);
    }
    // The checksum's change by the header: what was there goes, what is there then comes.
    action checksum_subtract() {
        meta.udp_change = OLD(hdr.memory.flags ++ hdr.memory.status) + OLD(hdr.memory.shard) + OLD2(hdr.memory.epoch)
            + OLD2(hdr.memory.region);
    }
    action checksum_add() {
        meta.udp_change = meta.udp_change + NEW(hdr.memory.flags ++ hdr.memory.status) + NEW(hdr.memory.shard) + NEW2(hdr.memory.epoch)
            + NEW2(hdr.memory.region);
    }

    @id(ACTION_SET_REGION)
    action set_region(bit<32> region, bit<8> granule_bits, bit<16> shard_mask) {
        region_traffic.count();
        hdr.memory.region = region;
        hdr.memory.shard = (bit<16>)(hdr.memory.address >> granule_bits) & shard_mask;
    }
    @id(ACTION_NO_REGION)
    action no_region() {
        region_traffic.count();
        answer(memory_status_t.NO_REGION);
    }
    @id(REGION_TABLE)
    table region {
        key = { hdr.memory.address: lpm @name("address"); }
        actions = { set_region; no_region; }
        const default_action = no_region();
        counters = region_traffic;
        size = 1024;
    }
    // Unicast or to all, this is the primary's way: a group of no number has the primary alone.
    @id(ACTION_SET_SHARD)
    action set_shard(bit<32> epoch, bit<16> device, port_id_t port, bit<16> group) {
        hdr.memory.epoch = epoch;
        standard_metadata.egress_rid = device;    // as on a copy: memory_egress.p4 looks up where it is
        standard_metadata.egress_spec = port;
        meta.device_group = group;
    }
    @id(ACTION_SHARD_LOST)
    action shard_lost(memory_status_t status) {
        answer(status);
    }
    @id(ACTION_NO_SHARD)
    action no_shard() {
        answer(memory_status_t.BUSY);
    }
    @id(SHARD_TABLE)
    table shard {
        key = {
            hdr.memory.region: exact @name("region");
            hdr.memory.shard:  exact @name("shard");
        }
        actions = { set_shard; shard_lost; no_shard; }
        const default_action = no_shard();
        size = 16384;
    }
    action to_all() {
        hdr.memory.flags = hdr.memory.flags | FLAG_REPLICATED;
        standard_metadata.mcast_grp = meta.device_group;
    }
    action from_client() {
        hdr.memory.flags = hdr.memory.flags & ~FLAG_REPLICATED;
    }

    apply {
        if (hdr.udp.dst_port != MEMORY_PORT) {
            back();    // a device's reply to a client on its own host: see memory_egress.p4
        } else {
            checksum_subtract();
            from_client();
            if (hdr.memory.version != MEMORY_VERSION || hdr.ipv4.total_length != hdr.udp.length + IPV4_BYTES
                    || hdr.udp.length < ANSWER_LENGTH || (hdr.memory.flags & FLAG_REPLY) != 0) {
                answer(memory_status_t.MALFORMED);
            } else if (region.apply().hit) {
                shard.apply();
            }
            if ((hdr.memory.flags & FLAG_REPLY) != 0) {
                back();
                swap_ports();
                header_alone();
                adjust_checksums.apply(hdr, meta);
            } else {
                if (meta.device_group != 0 && !CHANGES_NOTHING(hdr.memory)) {
                    to_all();
                }
                checksum_add();
            }
        }
    }
}
