// SPDX-License-Identifier: MIT
// What the switch remembers of blocks, jobs and members, and everything that may be done to it: no other file touches the first
// two registers.
//
//   record     one for each slot: the block that the slot holds. Changed by block, parent and aging_scan, shown by query.
//   progress   one for each job whose blocks age out: its newest block, and its stragglers.
//   address    one for each source that is known by its key: where it is. Written by member, read by rewrite.
//
// A packet reads its slot's record, decides, and writes the record back. Nothing comes in between: simple_switch and
// netsum-switch run ingress on one thread, and for targets with several, netsum.p4 has the stages from block, parent or
// aging_scan up to and including aggregate in one @atomic block (a record says what is in its slot's buffers, so they must
// change together).
//
// A cell is one number (RECORD_x and PROGRESS_x cut a field out, AS_x puts a value in its place; see types.p4): BMv2 pays
// for every field that is written, so adding a contribution is one assignment, not one for each counter.

#ifndef STATE_P4
#define STATE_P4

#include "headers.p4"

@id(RECORD_REGISTER)
register<record_raw_t, bit<32>>(SLOTS) record_register;
@id(JOB_PROGRESS_REGISTER)
register<progress_raw_t, bit<8>>(256) job_progress_register;    // by job

// The latest address from which a member's key came (member.p4), by job and source: the epoch, MAC and IP addresses and UDP port.
typedef bit<128> address_raw_t;
@id(ADDRESS_REGISTER)
register<address_raw_t, bit<16>>(65536) address_register;
#define ADDRESS_OF(h, m)      (m.epoch ++ h.ethernet.src_addr ++ h.ipv4.src_addr ++ h.udp.src_port)
#define ADDRESS_EPOCH(a)      a[127:96]
#define ADDRESS_MAC(a)        a[95:48]
#define ADDRESS_IP(a)         a[47:16]
#define ADDRESS_UDP_PORT(a)   a[15:0]

// A packet's fingerprint, in its place in the record.
#define FINGERPRINT(h) (AS_CALL_FINGERPRINT(h.call_fingerprint) | AS_GEN_ID(h.gen_id) | AS_DEST(h.dest) | AS_OP(h.op) \
    | AS_LANE(h.lane))

// A child switch that may not close a block asks whether its parent has: nothing of it is added.
#define IS_QUERY(h) (h.hop == hop_t.UP && h.query == 1)

// But the payload of a COPY that comes with it is taken: it goes ahead of the contribution that counts it.
#define BRINGS_COPY(h) (h.op == op_t.COPY && h.lane_cnt != 0)

// From the packet's block to the job's newest, as a serial number.
#define BEHIND(hdr, m) (PROGRESS_NEWEST_BLOCK(m.progress) - hdr.netsum.block_id)
#define IS_NEWEST(hdr, m) (BEHIND(hdr, m) >= 0x80000000)

// Whether an open block need not wait any longer: no source is missing (since a source was evicted, perhaps); or enough workers
// have waited long enough for the late; or only stragglers are missing, who have not been heard of since they were late the
// last time. A scan's time is that of its first pass, so a block may be younger than that: a difference would wrap.
#define ALL_IN(m) ((RECORD_SEEN(m.record) & m.all_sources) == m.all_sources)
#define MAY_CLOSE(m) (m.block_exp != 0 && HAS_NO_AGING(m.record, 0) && RECORD_WORKER_CNT(m.record) >= m.quorum)
#define EXPIRED(m, now) (MAY_CLOSE(m) && now >= RECORD_START(m.record) + (bit<48>)m.block_exp)
#define ALL_BUT_STRAGGLERS(m) (MAY_CLOSE(m) \
    && ((RECORD_SEEN(m.record) | PROGRESS_STRAGGLERS(m.progress)) & m.all_sources) == m.all_sources)

control LoadRecord(out record_raw_t record, in bit<32> slot) {
    apply {
        record_register.read(record, slot);
    }
}

control StoreRecord(in metadata_t meta) {
    apply {
        record_register.write(meta.slot, meta.record);
    }
}

// A slot that is empty or was written in another epoch reads as the closed block one lap before the first lap.
control ReadAsClosed(in headers_t hdr, inout metadata_t meta) {
    apply {
        meta.record = AS_BLOCK_ID(meta.first_block - meta.num_slots
            + ((hdr.netsum.block_id - meta.first_block) & (meta.num_slots - 1)));
    }
}

control OpenBlock(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    apply {
        meta.record = AS_START(standard_metadata.ingress_global_timestamp) | AS_EPOCH(meta.epoch)
            | AS_BLOCK_ID(hdr.netsum.block_id) | AS_STATE(state_t.OPEN);
    }
}

// The packet becomes what the slot holds. A COPY's payload may be there although no contribution has counted it yet: then it is
// in no result.
control LoadResult(inout metadata_t meta) {
    apply {
        meta.combine = combine_t.LOAD;
        if (HAS_DATA_CNT(meta.record, 0)) {
            meta.record = meta.record & ~PAYLOAD_BITS;
        }
    }
}

// Ends an open block: a root's is DONE, a leaf's SENT.
control CloseBlock(inout metadata_t meta) {
    apply {
        meta.record = meta.record + AS_STATE(meta.role);
    }
}

// The same without those who are late: what is in it is partial.
control CloseWithoutLate(inout metadata_t meta) {
    apply {
        meta.record = (meta.record | AS_DEGRADED(1w1)) + AS_STATE(meta.role);
    }
}

// The highest status that was contributed is the block's.
control RaiseStatus(in headers_t hdr, inout metadata_t meta) {
    apply {
        meta.record = meta.record + AS_STATUS((bit<4>)hdr.netsum.status - (bit<4>)RECORD_STATUS(meta.record));
    }
}

// A progress that was kept in another epoch says nothing: all blocks of the first window may be open.
control LoadProgress(in headers_t hdr, inout metadata_t meta) {
    apply {
        job_progress_register.read(meta.progress, hdr.netsum.job_id);
        if (PROGRESS_EPOCH(meta.progress) != meta.epoch) {
            meta.progress = AS_PROGRESS_EPOCH(meta.epoch)
                | AS_PROGRESS_NEWEST_BLOCK(meta.first_block + (bit<32>)meta.window - 1);
        }
    }
}

// A source came to a block that is newer than all before.
control AdvanceNewestBlock(in headers_t hdr, inout metadata_t meta) {
    apply {
        meta.progress = (meta.progress & ~AS_PROGRESS_NEWEST_BLOCK(32w0xffffffff)) | AS_PROGRESS_NEWEST_BLOCK(hdr.netsum.block_id);
        job_progress_register.write(hdr.netsum.job_id, meta.progress);
    }
}

// A source that is missing from the block was late.
control MarkStragglers(in headers_t hdr, inout metadata_t meta) {
    apply {
        meta.progress = meta.progress | AS_PROGRESS_STRAGGLERS(meta.all_sources & ~RECORD_SEEN(meta.record));
        job_progress_register.write(hdr.netsum.job_id, meta.progress);
    }
}

// The source has been heard of again.
control ClearStraggler(in headers_t hdr, inout metadata_t meta) {
    apply {
        meta.progress = meta.progress & ~AS_PROGRESS_STRAGGLERS(meta.source);
        job_progress_register.write(hdr.netsum.job_id, meta.progress);
    }
}

#endif
