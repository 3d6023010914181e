// netsum: gradient sums computed inside the network. This file is the table of contents; each stage is a file.
//
//   contribution -> parser -> ports -> aggregator -> check -> job -> member -> block -> aggregate -> deliver -> priority -> reply
//                -> (multicast to the job's sources, or unicast to the one that asked again) -> rewrite -> result
//                -> uplink (on a switch that has a parent) -> partial
//   result of the parent -> ... -> member -> parent -> aggregate -> deliver -> reply -> (multicast) -> rewrite -> result
//   sweep (a PacketOut)  -> ... -> job -> sweep -> deliver -> reply -> (multicast) -> results, and the next pass or a PacketIn
//   query or claim (a PacketOut) -> PacketIn
//   instruction -> parser -> aggregator -> sender -> memory -> (unicast, or multicast to a shard's devices) -> device
//   reply of a device -> parser -> sender -> devices -> forward
//   everything else -> parser -> sender -> forward -> prune

#include <core.p4>
#define V1MODEL_VERSION 20200408    // an index is of any width: a field as it is, without a copy in 32 bits
#include <v1model.p4>

#include "include/parser.p4"
#include "include/checksums.p4"
#include "include/state.p4"
#include "include/payload.p4"
#include "stages/query.p4"
#include "stages/claim.p4"
#include "stages/ports.p4"
#include "stages/aggregator.p4"
#include "stages/arp.p4"
#include "stages/sender.p4"
#include "stages/devices.p4"
#include "stages/memory.p4"
#include "stages/forward.p4"
#include "stages/check.p4"
#include "stages/job.p4"
#include "stages/member.p4"
#include "stages/block.p4"
#include "stages/early.p4"
#include "stages/parent.p4"
#include "stages/sweep.p4"
#include "stages/aggregate.p4"
#include "stages/deliver.p4"
#include "stages/priority.p4"
#include "stages/reply.p4"
#include "stages/uplink.p4"
#include "stages/rewrite.p4"
#include "stages/device.p4"
#include "stages/prune.p4"

control NetsumIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Ports()      ports;
    Aggregator() aggregator;
    Check()      check;
    Job()        job;
    Member()     member;
    Block()      block;
    Early()      early;
    Parent()     parent;
    Sweep()      sweep;
    Aggregate()  aggregate;
    Deliver()    deliver;
    Priority()   priority;
    Reply()      reply;
    Uplink()     uplink;
    Arp()        arp;
    Sender()     sender;
    Devices()    devices;
    Memory()     memory;
    Forward()    forward;
    Claim()      claim;
    Query()      query;

    apply {
        ports.apply(hdr, standard);
        aggregator.apply(hdr, meta);
        if (meta.aggregator_mac != 0 && hdr.netsum.isValid()) {
            check.apply(hdr, meta, standard);
            job.apply(hdr, meta);
            member.apply(hdr, meta, standard);
            if (meta.from == FROM_MEMBER)      { block.apply(hdr, meta, standard); }
            else if (meta.from == FROM_PARENT) { early.apply(hdr, meta, standard); parent.apply(hdr, meta); }
            else                               { sweep.apply(hdr, meta, standard); }
            aggregate.apply(hdr, meta);
            deliver.apply(hdr, meta, standard);
            if (meta.reply != REPLY_NOTHING) {
                priority.apply(hdr, meta, standard);
                reply.apply(hdr, meta);
                uplink.apply(hdr, meta, standard);
            }
        } else if (meta.aggregator_mac != 0 && hdr.arp.isValid()) {
            arp.apply(hdr, meta, standard);
        } else if (meta.from != FROM_CONTROLLER) {
            sender.apply(hdr, meta, standard);
            if (hdr.memory.isValid() && meta.from != FROM_CLIENT) { devices.apply(hdr, meta, standard); }
            if (meta.from == FROM_CLIENT && meta.unwelcome == 0)  { memory.apply(hdr, meta, standard); }
            else                                                  { forward.apply(hdr, meta, standard); }
        } else if (hdr.packet_out.kind == KIND_CLAIM) {
            claim.apply(hdr, meta, standard);
        } else if (hdr.packet_out.kind == KIND_QUERY) {
            query.apply(hdr, meta, standard);
        } else {
            mark_to_drop(standard);    // a sweep that is not for our address
        }
    }
}

control NetsumEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    SweepOn() sweep_on;
    Rewrite() rewrite;
    Device()  device;
    Prune()   prune;

    apply {
        if (hdr.packet_out.isValid() && standard.egress_port == CPU_PORT) {
            sweep_on.apply(hdr, meta, standard);
        } else if (REPLY_TO_SOURCES(meta.reply)) {
            rewrite.apply(hdr, meta, standard);
        } else if (meta.from == FROM_CLIENT && meta.reply != REPLY_ANSWER) {
            device.apply(hdr, meta, standard);
        } else {
            prune.apply(standard);
        }
    }
}

V1Switch(NetsumParser(), NetsumVerifyChecksum(), NetsumIngress(), NetsumEgress(), NetsumUpdateChecksum(),
         NetsumDeparser()) main;
