// SPDX-License-Identifier: MIT
// netsum: gradient sums computed inside the network. This file is the table of contents; each stage is a file.
//
// No ASIC runs this program: it adds 2048 bits at once. It is for BMv2's simple_switch_grpc and for netsum-switch.
//
//   contribution -> parser -> port_counters -> my_station -> check -> job -> member -> block
//                -> aggregate -> deliver -> priority -> reply
//                -> (multicast to the job's sources, or unicast to the one that repeated its contribution) -> rewrite -> result
//                -> uplink (on a switch that has a parent) -> partial
//   result of the parent    -> ... -> member -> early_payload, parent -> aggregate -> deliver -> reply -> (multicast) -> rewrite
//                           -> result
//   aging scan, a PacketOut -> ... -> job -> aging_scan -> deliver -> reply -> (multicast) -> results, and the next pass
//                           or a PacketIn
//   query or claim, a PacketOut -> query or epoch_alloc -> PacketIn
//   instruction             -> parser -> my_station -> source_guard -> memory -> (unicast, or multicast to a shard's devices)
//                           -> memory_egress
//   reply of a device       -> parser -> source_guard -> memory_source_guard -> forward
//   everything else         -> parser -> source_guard -> forward -> flood_prune

#include <core.p4>
#define V1MODEL_VERSION 20200408    // an index is of any width: a field as it is, without a copy in 32 bits
#include <v1model.p4>

#include "parser.p4"
#include "checksums.p4"
#include "state.p4"
#include "payload.p4"
#include "control/query.p4"
#include "control/epoch_alloc.p4"
#include "control/port_counters.p4"
#include "control/my_station.p4"
#include "control/arp.p4"
#include "control/source_guard.p4"
#include "memory/memory_source_guard.p4"
#include "memory/memory.p4"
#include "control/forward.p4"
#include "control/check.p4"
#include "control/job.p4"
#include "control/member.p4"
#include "control/block.p4"
#include "control/early_payload.p4"
#include "control/parent.p4"
#include "control/aging_scan.p4"
#include "control/aggregate.p4"
#include "control/deliver.p4"
#include "control/priority.p4"
#include "control/reply.p4"
#include "control/uplink.p4"
#include "control/rewrite.p4"
#include "memory/memory_egress.p4"
#include "control/flood_prune.p4"

control NetsumIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    PortCounters()      port_counters;
    MyStation()         my_station;
    Check()             check;
    Job()               job;
    Member()            member;
    Block()             block;
    EarlyPayload()      early_payload;
    Parent()            parent;
    AgingScan()         aging_scan;
    Aggregate()         aggregate;
    Deliver()           deliver;
    Priority()          priority;
    Reply()             reply;
    Uplink()            uplink;
    Arp()               arp;
    SourceGuard()       source_guard;
    MemorySourceGuard() memory_source_guard;
    Memory()            memory;
    Forward()           forward;
    EpochAlloc()        epoch_alloc;
    Query()             query;

    apply {
        port_counters.apply(hdr, standard_metadata);
        my_station.apply(hdr, meta);
        if (meta.my_mac != 0 && hdr.netsum.isValid()) {
            check.apply(hdr, meta, standard_metadata);
            job.apply(hdr, meta);
            member.apply(hdr, meta, standard_metadata);
            @atomic {    // a record says what is in its slot's buffers
                if (meta.from == FROM_MEMBER)      { block.apply(hdr, meta, standard_metadata); }
                else if (meta.from == FROM_PARENT) { early_payload.apply(hdr, meta, standard_metadata); parent.apply(hdr, meta); }
                else                               { aging_scan.apply(hdr, meta, standard_metadata); }
                aggregate.apply(hdr, meta);
            }
            deliver.apply(hdr, meta, standard_metadata);
            if (meta.reply != REPLY_NOTHING) {
                priority.apply(hdr, meta, standard_metadata);
                reply.apply(hdr, meta);
                uplink.apply(hdr, meta, standard_metadata);
            }
        } else if (meta.my_mac != 0 && hdr.arp.isValid()) {
            arp.apply(hdr, meta, standard_metadata);
        } else if (meta.from != FROM_CONTROLLER) {
            source_guard.apply(hdr, meta, standard_metadata);
            if (hdr.memory.isValid() && meta.from != FROM_CLIENT) { memory_source_guard.apply(hdr, meta, standard_metadata); }
            if (meta.from == FROM_CLIENT && meta.not_admitted == 0)  { memory.apply(hdr, meta, standard_metadata); }
            else                                                  { forward.apply(hdr, meta, standard_metadata); }
        } else if (hdr.packet_out.kind == KIND_CLAIM) {
            epoch_alloc.apply(hdr, meta, standard_metadata);
        } else if (hdr.packet_out.kind == KIND_QUERY) {
            query.apply(hdr, meta, standard_metadata);
        } else {
            mark_to_drop(standard_metadata);    // a scan that is not for our address
        }
    }
}

control NetsumEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    NextScanPass()      next_scan_pass;
    Rewrite()           rewrite;
    MemoryEgress()      memory_egress;
    FloodPrune()        flood_prune;

    apply {
        if (hdr.packet_out.isValid() && standard_metadata.egress_port == CPU_PORT) {
            next_scan_pass.apply(hdr, meta, standard_metadata);
        } else if (REPLY_TO_SOURCES(meta.reply)) {
            rewrite.apply(hdr, meta, standard_metadata);
        } else if (meta.from == FROM_CLIENT && meta.reply != REPLY_ANSWER) {
            memory_egress.apply(hdr, meta, standard_metadata);
        } else {
            flood_prune.apply(standard_metadata);
        }
    }
}

@pkginfo(name="netsum", version="0.1.0", organization="netsum")
V1Switch(NetsumParser(), NetsumVerifyChecksum(), NetsumIngress(), NetsumEgress(), NetsumUpdateChecksum(),
         NetsumDeparser()) main;
