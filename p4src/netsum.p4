// SPDX-License-Identifier: MIT
// netsum: gradient sums computed inside the network. This file is the table of contents; each stage is a file.
//
// No ASIC runs this program: it adds 2048 bits at once. It is for BMv2's simple_switch_grpc and for netsum-switch.
//
//   ingress                                                                                            egress
//
//   parser -> port_counters -> my_station
//     netsum               -> check -> job -> member
//       from a member        -> block                 \
//       from the parent      -> early_payload, parent  -> aggregate -> deliver -> priority -> reply -> uplink   -> rewrite
//       from the controller  -> aging_scan            /                                                         -> next_scan_pass
//     ARP                  -> arp
//     query or claim       -> query or epoch_alloc
//     memory               -> source_guard -> memory_source_guard -> memory                               -> memory_egress
//     everything else      -> source_guard -> forward                                                     -> flood_prune
//
// A contribution joins the block in its slot (block, aggregate); the one that completes it becomes the result, which goes to
// all of the job's sources, or a partial for the switch's parent. The parent's result comes down as a contribution came up
// (parent). A scan is a PacketOut that walks through a job's slots and closes what has waited for long enough (aging_scan).

#ifndef WITHOUT_MEMORY
#define WITH_MEMORY     // memory in the network: the switch as the MMU of memory devices (memory/)
#endif

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
#ifdef WITH_MEMORY
#include "memory/memory_source_guard.p4"
#include "memory/memory.p4"
#include "memory/memory_egress.p4"
#endif
#include "control/forward.p4"
#include "control/check.p4"
#include "control/job.p4"
#include "control/member.p4"
#include "control/classify_block.p4"
#include "control/check_fingerprint.p4"
#include "control/accept_payload.p4"
#include "control/join_block.p4"
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
    Forward()           forward;
    EpochAlloc()        epoch_alloc;
    Query()             query;
#ifdef WITH_MEMORY
    MemorySourceGuard() memory_source_guard;
    Memory()            memory;
#endif

    apply {
        port_counters.apply(hdr, standard_metadata);
        my_station.apply(hdr, meta);
        if (meta.my_mac != 0 && hdr.netsum.isValid()) {
            check.apply(hdr, meta, standard_metadata);
            job.apply(hdr, meta);
            member.apply(hdr, meta, standard_metadata);
            @atomic {    // a record says what is in its slot's buffers
                if (meta.from == sender_t.MEMBER) {
                    block.apply(hdr, meta, standard_metadata);
                } else if (meta.from == sender_t.PARENT) {
                    early_payload.apply(hdr, meta, standard_metadata);
                    parent.apply(hdr, meta);
                } else {
                    aging_scan.apply(hdr, meta, standard_metadata);
                }
                aggregate.apply(hdr, meta);
            }
            deliver.apply(hdr, meta, standard_metadata);
            if (meta.reply != reply_t.NOTHING) {
                priority.apply(hdr, meta, standard_metadata);
                reply.apply(hdr, meta);
                uplink.apply(hdr, meta, standard_metadata);
            }
        } else if (meta.my_mac != 0 && hdr.arp.isValid()) {
            arp.apply(hdr, meta, standard_metadata);
        } else if (meta.from != sender_t.CONTROLLER) {
            source_guard.apply(hdr, meta, standard_metadata);
#ifdef WITH_MEMORY
            if (hdr.memory.isValid() && meta.from != sender_t.CLIENT) {
                memory_source_guard.apply(hdr, meta, standard_metadata);
            }
            if (meta.from == sender_t.CLIENT && meta.not_admitted == 0) {
                memory.apply(hdr, meta, standard_metadata);
            } else {
                forward.apply(hdr, meta, standard_metadata);
            }
#else
            forward.apply(hdr, meta, standard_metadata);
#endif
        } else if (hdr.packet_out.kind == packet_out_kind_t.CLAIM) {
            epoch_alloc.apply(hdr, meta, standard_metadata);
        } else if (hdr.packet_out.kind == packet_out_kind_t.QUERY) {
            query.apply(hdr, meta, standard_metadata);
        } else {
            mark_to_drop(standard_metadata);    // a scan that is not for our address
        }
    }
}

control NetsumEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    NextScanPass() next_scan_pass;
    Rewrite()      rewrite;
    FloodPrune()   flood_prune;
#ifdef WITH_MEMORY
    MemoryEgress() memory_egress;
#endif

    apply {
        if (hdr.packet_out.isValid() && standard_metadata.egress_port == CPU_PORT) {
            next_scan_pass.apply(hdr, meta, standard_metadata);
        } else if (REPLY_TO_SOURCES(meta.reply)) {
            rewrite.apply(hdr, meta, standard_metadata);
#ifdef WITH_MEMORY
        } else if (meta.from == sender_t.CLIENT && meta.reply != reply_t.ANSWER) {
            memory_egress.apply(hdr, meta, standard_metadata);
#endif
        } else {
            flood_prune.apply(standard_metadata);
        }
    }
}

@pkginfo(name="netsum", version="0.1.0", organization="netsum")
V1Switch(NetsumParser(), NetsumVerifyChecksum(), NetsumIngress(), NetsumEgress(), NetsumUpdateChecksum(),
         NetsumDeparser()) main;
