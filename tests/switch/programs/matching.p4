// What tables do besides choosing an entry (contract.p4 has every kind of match): const entries with priorities, hit and
// miss, action_run, default entries, keys of invalid headers, exit, if inside actions; registers and counters; a value set.
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
header tag_t { bit<8> id; bit<8> value; }
header result_t { bit<8> chosen; bit<8> hit; bit<8> run; bit<8> after; bit<32> held; bit<32> beyond; }
struct headers_t { ethernet_t ethernet; result_t result; tag_t tag; }
struct metadata_t { }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<16>>(4) nothing;  // no switch fills it
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            nothing: tag;
            0x9000 &&& 0xff00: tag;
            default: accept;
        }
    }
    state tag { packet.extract(hdr.tag); transition accept; }
}
control VerifyImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control IngressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(4) cells;
    counter(4, CounterType.packets_and_bytes) counted;
    action choose(bit<8> value) { hdr.result.chosen = value; }
    action twice(bit<8> value) { hdr.result.chosen = value; if (value > 100) { hdr.result.run = 0x99; exit; } }
    action leave() { exit; }
    action keep(bit<32> index, bit<32> value) {
        cells.read(hdr.result.held, index);
        cells.write(index, hdr.result.held + value);
        counted.count(index);
    }
    // Outside the arrays: the embedded switch does nothing, BMv2 does unless it was built without checks.
    action stray() {
        cells.read(hdr.result.beyond, 100);
        cells.write(100, 1);
        counted.count(100);
    }
    table ranked {
        key = { hdr.ethernet.src : ternary; hdr.ethernet.ether_type : range; }
        actions = { choose; NoAction; }
        default_action = choose(0xdd);
        const entries = {
            (0x000000000001 &&& 0x0000000000ff, 0x9000 .. 0x9001) : choose(1);
            (0x000000000100 &&& 0x00000000ff00, _)                : choose(2);
            (_, 0x9002)                                           : choose(3);
        }
    }
    table tagged {
        key = { hdr.tag.id : exact; hdr.tag.isValid() : exact; }
        actions = { choose; twice; leave; keep; NoAction; }
        size = 3;
        default_action = NoAction();
    }
    table run {
        key = { hdr.tag.value : exact; }
        actions = { choose; keep; stray; leave; NoAction; }
        default_action = NoAction();
    }
    apply {
        standard.egress_spec = standard.ingress_port;
        hdr.result.setValid();
        hdr.result.beyond = (bit<32>)hdr.ethernet.src;
        ranked.apply();
        if (tagged.apply().hit) { hdr.result.hit = 1; } else { hdr.result.hit = 2; }
        switch (run.apply().action_run) {
            choose: { hdr.result.run = 1; }
            keep: { hdr.result.run = 2; }
            default: { hdr.result.run = 3; }
        }
        hdr.result.after = 1;
    }
}
control EgressImpl(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control ComputeImpl(inout headers_t hdr, inout metadata_t meta) { apply { } }
control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.ethernet); packet.emit(hdr.result); packet.emit(hdr.tag); }
}
V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), ComputeImpl(), DeparserImpl()) main;
