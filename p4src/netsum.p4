// netsum: gradient sums computed inside the network. This file is the table of contents; each stage is a file.
//
//   contribution -> parser -> verify checksums -> ports -> aggregator -> check -> job -> member -> block -> aggregate -> deliver
//                -> (multicast to the job's members, or unicast to the asker) -> rewrite -> checksums -> result
//                -> uplink (on a switch that has a parent) -> checksums -> partial
//   result of the parent -> ... -> member -> parent -> aggregate -> deliver -> (multicast) -> rewrite -> checksums -> result
//   everything else -> parser -> forward -> prune
//   PacketOut -> query (or claim) -> PacketIn
//   PacketOut -> parser -> aggregator -> check -> job -> sweep -> deliver -> (results) and the next pass, or PacketIn

#include <core.p4>
#include <v1model.p4>

#include "include/parser.p4"
#include "include/checksums.p4"
#include "stages/query.p4"
#include "stages/claim.p4"
#include "stages/ports.p4"
#include "stages/aggregator.p4"
#include "stages/arp.p4"
#include "stages/forward.p4"
#include "stages/check.p4"
#include "stages/job.p4"
#include "stages/member.p4"
#include "stages/block.p4"
#include "stages/parent.p4"
#include "stages/sweep.p4"
#include "stages/aggregate.p4"
#include "stages/priority.p4"
#include "stages/uplink.p4"
#include "stages/deliver.p4"
#include "stages/rewrite.p4"
#include "stages/prune.p4"

control NetsumIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Query()      query;
    Claim()      claim;
    Ports()      ports;
    Aggregator() aggregator;
    Arp()        arp;
    Forward()    forward;
    Check()      check;
    Job()        job;
    Member()     member;
    Block()      block;
    Parent()     parent;
    Sweep()      sweep;
    Aggregate()  aggregate;
    Deliver()    deliver;

    apply {
        if (hdr.packet_out.isValid() && hdr.packet_out.kind != KIND_SWEEP) {
            if (hdr.packet_out.kind == KIND_CLAIM) {
                claim.apply(hdr, standard);
            } else {
                query.apply(hdr, standard);
            }
        } else {
            ports.apply(hdr, standard);
            aggregator.apply(hdr, meta);
            if (meta.aggregator_mac == 0) {
                forward.apply(hdr, meta, standard);
            } else if (hdr.netsum.isValid()) {
                check.apply(hdr, meta, standard);
                job.apply(hdr, meta);
                if (hdr.packet_out.isValid()) {
                    sweep.apply(hdr, meta, standard);
                } else {
                    member.apply(hdr, meta, standard);
                    if (meta.from_parent == 1) {
                        parent.apply(hdr, meta);
                    } else {
                        block.apply(hdr, meta, standard);
                    }
                }
                aggregate.apply(hdr, meta);
                deliver.apply(hdr, meta, standard);
            } else {
                arp.apply(hdr, meta, standard);
            }
        }
    }
}

control NetsumEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    SweepOn() sweep_on;
    Rewrite() rewrite;
    Prune()   prune;

    apply {
        if (hdr.packet_out.isValid() && standard.egress_port == CPU_PORT) {
            sweep_on.apply(hdr, meta, standard);
        } else {
            rewrite.apply(hdr, meta, standard);
            prune.apply(standard);
        }
    }
}

V1Switch(NetsumParser(), NetsumVerifyChecksum(), NetsumIngress(), NetsumEgress(), NetsumUpdateChecksum(),
         NetsumDeparser()) main;
